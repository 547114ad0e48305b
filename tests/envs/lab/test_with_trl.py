"""The program that trains by TRL's AsyncGRPOTrainer."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from programs import Program
from transformers import AutoModelForCausalLM

from atropos_agent.cpu_engine.model import DEFAULT_CACHE
from envs.lab import smoke
from envs.records.read import read_rollouts
from envs.trainers.ledger import HandedRow

pytest.importorskip("trl", reason="trl is not installed")
with_trl: Any = pytest.importorskip("envs.lab.with_trl")

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore")]  # of TRL and what it imports


def test_options_of_the_trainer_and_of_the_environment_stand_side_by_side(tmp_path: Path) -> None:
    mine = ["--model", str(tmp_path), "--out", str(tmp_path / "out"), "--batch-size", "8", "--sgd"]
    options, told = with_trl.parse([*mine, "--env.group_size=4", "--openai.base_url=http://localhost:1/v1"])
    assert (options.batch_size, options.sgd, told.env.group_size) == (8, True, 4)
    assert told.engines[0].base_url == "http://localhost:1/v1"
    with_trl.check_device(SimpleNamespace(device="cpu"))


def test_a_step_is_written_as_our_trainer_writes_it(tmp_path: Path) -> None:
    rows = [
        HandedRow("g0", 0, "a", 1.0),
        HandedRow("g0", 1, "a", 1.0),
        HandedRow("g0", 2, "b", 0.0),
        HandedRow("g1", 0, "c", 0.0),
    ]
    worker: Any = SimpleNamespace(last_step=rows)
    report = with_trl.Report(worker, tmp_path / "steps.jsonl")
    told = SimpleNamespace(global_step=3)
    report.on_log(None, told, None, {"ratio": 1.0, "sample/staleness_mean": 0.5})
    report.on_log(None, told, None, {"train_runtime": 9.0})
    (line,) = map(json.loads, (tmp_path / "steps.jsonl").read_text().splitlines())
    assert (line["step"], line["reward"], line["group_rewards"]) == (3, 1 / 3, [0.5, 0.0]), "a rollout counts once"
    assert (line["rollout_ids"], line["groups_with_signal"]) == (["a", "b", "c"], 1)
    assert (line["ratio"], line["lag"]) == (1.0, 0.5)


def write_adapter(folder: Path) -> Path:
    """Write an adapter that changes the smoke model a little."""
    torch.manual_seed(0)
    settings = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False)
    network = get_peft_model(AutoModelForCausalLM.from_pretrained(smoke.model(DEFAULT_CACHE)), settings)
    for name, factor in network.named_parameters():
        if "lora_B" in name:
            factor.data *= 0.05
    network.save_pretrained(folder)
    return folder


def test_a_checkpoint_with_all_steps_is_trained_no_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = tmp_path / "out/checkpoint-2"
    saved.mkdir(parents=True)
    state = {"global_step": 2, "stateful_callbacks": {"Confirming": {"args": {}, "attributes": {"version": 2}}}}
    (saved / "trainer_state.json").write_text(json.dumps(state))
    steps: list[int] = []
    told = SimpleNamespace(train=lambda **_: steps.append(options.steps))
    monkeypatch.setattr(with_trl, "make_trainer", lambda *_: told)
    for number in ("1", "2", "3"):
        options, values = with_trl.parse(
            ["--model", str(tmp_path), "--out", str(tmp_path / "out"), "--steps", number, "--env.tasks=starter"]
        )
        with_trl.train(options, values)
    assert steps == [3]


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("masks", "adapted"), [("learn", False), ("learn", True), ("shifted", False)])
async def test_the_first_ratio_is_one_and_shifted_masks_show_in_it(
    base_image: str, tmp_path: Path, masks: str, adapted: bool
) -> None:
    command = [
        Path(__file__).parents[1] / "trainers/trl_on_cpu.py",
        masks,
        "--preset",
        "smoke",
        "--steps",
        "3",  # rows of the third are not from the first weights: TRL drops what is two steps old
        *(["--adapter", write_adapter(tmp_path / "adapter")] if adapted else []),
        "--run-dir",
    ]
    told = {**os.environ, "HF_HUB_OFFLINE": "1"}
    ended = Program([*map(str, command), str(tmp_path / "run")], stdout=tmp_path / "log", env=told)
    assert await asyncio.to_thread(ended.wait, 1400) == 0, (tmp_path / "log").read_text()[-3000:]
    first, second, _ = map(json.loads, (tmp_path / "run/trainer/steps.jsonl").read_text().splitlines())
    if masks == "shifted":
        assert abs(first["ratio"] - 1) > 1
        return
    assert abs(first["ratio"] - 1) < 1e-3 and abs(second["ratio"] - 1) < 0.1
    rows = read_rollouts(tmp_path / "run/environment")
    versions = {step.policy_version for rollout in rows for step in rollout.result.steps}
    assert {0, 1} <= versions, "weights were pushed, and the server says which it sampled from"
    assert (tmp_path / "run/trainer/checkpoint-3/adapter_model.safetensors").exists() is adapted
