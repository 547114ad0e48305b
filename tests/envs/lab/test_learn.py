"""Reinforcement learning on real parts: the reward rises, and doesn't where the signal is wrong."""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import random
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import clients
import pytest
from embedded_engine import engine
from lesson import FunctionLesson, corrupted, learn, risen, script_lesson
from rich.console import Console
from run_api import RunAPI

from atropos_agent.cpu_engine.model import DEFAULT_CACHE
from envs.agents.naming import find_foreign_agent
from envs.lab import smoke, trainer
from envs.lab.learn import (
    _check_run_facts,
    _environment_options,
    _evaluate,
    _find_conflict,
    _keep_current,
    _select_preset,
    _start_engine,
    _trainer_arguments,
    _warm_start_options,
    _write_tasks,
    main,
)
from envs.lab.parsers import learn_parser
from envs.lab.parts import PartError, Parts
from envs.lab.presets import PRESETS
from envs.running.database import lock_directory
from envs.swe.environment import SWEEnv
from sandboxes.installing import install

shift = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks/shifted_masks.py"))["shifted"]

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(900),
    # peft 0.21 asks transformers 5 by a name that the latter renames in version 6.
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]

SMOKE = PRESETS["smoke"]
SCRIPTS = {
    clients.chat: "openai",
    clients.chat_streamed: "openai",
    clients.responses: "openai",
    clients.anthropic_streamed: "anthropic",
    clients.langgraph: "langgraph",
    clients.pydantic_ai: "pydantic_ai",
    clients.openai_agents: "agents",
    clients.smolagents: "smolagents",
}
"""Agents written with clients and frameworks, and the packages that they need."""
CONTROLS = (clients.anthropic_streamed, clients.langgraph)
STEPS = (
    "--steps",
    "10",  # some more than the preset's, as chance should hardly ever hide the rise
    "--max-lag",
    str(SMOKE.max_lag),
    *(word for name, value in SMOKE.trainer.items() for word in (f"--{name}", str(value)) if word),
)


def options(run_dir: Path, *given: str) -> argparse.Namespace:
    return learn_parser().parse_args(["--run-dir", str(run_dir), *given])


def test_the_name_that_presets_once_had_is_understood(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert options(tmp_path).preset == "smoke"
    assert options(tmp_path, "--preset", "gpu").preset == options(tmp_path, "--rung", "gpu").preset == "gpu"
    with pytest.raises(SystemExit):
        options(tmp_path, "--help")
    shown = capsys.readouterr().out
    assert "--preset" in shown and "rung" not in shown


def test_an_agent_that_is_not_ours_works_on_the_tasks_with_room_for_its_opening(tmp_path: Path) -> None:
    given = options(tmp_path, "--preset", "laptop", "--agent", "mini-swe-agent")
    settings = _environment_options(_select_preset(given), given, "http://engine/v1")
    assert settings["env.agent"] == "mini-swe-agent"
    assert settings["env.max_token_length"] == 4096
    assert _check_run_facts(given, _select_preset(given))["environment"]["env.agent"] == "mini-swe-agent"
    assert (_select_preset(given).steps, "--autocast" in _trainer_arguments(_select_preset(given), given, [])) == (
        10,
        True,
    )
    given = options(tmp_path, "--preset", "laptop", "--steps", "3", "--agent", "mini-swe-agent")
    assert _select_preset(given).milestones == [0, 3], "what is given wins"


def test_the_size_of_a_step_and_the_looks_are_as_given(tmp_path: Path) -> None:
    given = options(tmp_path, "--steps", "8", "--groups", "6", "--group-size", "1", "--evaluations", "3")
    preset, settings = _select_preset(given), _environment_options(_select_preset(given), given, "http://engine/v1")
    assert (preset.batch_size, preset.milestones, settings["env.group_size"]) == (6, [0, 4, 8], 1)
    assert _find_conflict(options(tmp_path, "--evaluations", "1")) == (
        "--evaluations 1: one is before and one after training; give 2 or more"
    )


@pytest.mark.parametrize("preset", sorted(PRESETS))
async def test_our_own_agent_by_its_name_is_as_no_agent_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preset: str
) -> None:
    asked: list[object] = []

    async def stands_in(*given: object, **named: object) -> Any:
        asked.append((*given, named))
        return tmp_path

    monkeypatch.setattr("envs.lab.learn.adapter", stands_in)
    monkeypatch.setattr("envs.lab.learn.output_of", stands_in)
    monkeypatch.setattr("envs.lab.learn.wait_until_healthy", stands_in)
    found = []
    for more in ([], ["--agent", "atropos"]):
        given = options(tmp_path, "--preset", preset, *more)
        chosen = _select_preset(given)
        warm = await _warm_start_options(chosen, given, Console())
        if chosen.model:
            parts: Any = SimpleNamespace(engine=stands_in, alongside=lambda coroutine: coroutine)
            await _start_engine(parts, chosen, given, warm, Console())
        found.append(
            (chosen, warm, _trainer_arguments(chosen, given, warm), _environment_options(chosen, given, ""), asked[:])
        )
        found[-1] += (_check_run_facts(given, chosen),)
        asked.clear()
    assert found[0] == found[1], "and the run of one goes on as the other"
    assert "--autocast" not in found[0][2]


def test_other_options_of_the_environment_are_passed_on(tmp_path, capsys):
    given = options(
        tmp_path, "--env", "workers=ray", "--env", "ray.address=a:6379", "--env", "max_concurrent_rollouts=9"
    )
    settings = _environment_options(_select_preset(given), given, "http://engine/v1")
    assert (settings["env.workers"], settings["env.ray.address"]) == ("ray", "a:6379")
    assert settings["env.max_concurrent_rollouts"] == "9", "what is given wins"
    with pytest.raises(SystemExit):
        options(tmp_path, "--env", "wrokers=ray")
    assert "'wrokers=ray' is no option of the environment" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--model", "X"], "give --engine-url too"),
        (["--engine-url", "http://localhost:1/v1"], "give --model too"),
        (["--preset", "gpu"], "preset gpu needs an inference server of yours"),
    ],
)
def test_a_server_and_its_model_are_given_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*given, "--run-dir", str(tmp_path / "run")])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


async def test_the_warm_start_is_in_the_manner_of_who_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    async def adapter(name: str, *, given: Path | None, agent: str) -> Path:
        asked.append((name, agent))
        return tmp_path

    monkeypatch.setattr("envs.lab.learn.adapter", adapter)
    for more in ([], ["--agent", "mini-swe-agent"], ["--agent", "atropos"]):
        given = options(tmp_path, "--preset", "laptop", *more)
        await _warm_start_options(_select_preset(given), given, Console())
    assert asked == [("full", ""), ("few", "mini-swe-agent"), ("full", "")]


def test_a_run_goes_on_with_the_same_settings_only_and_also_when_it_is_an_old_one(tmp_path: Path) -> None:
    config = _check_run_facts(options(tmp_path), SMOKE)
    assert _check_run_facts(options(tmp_path), SMOKE) == config
    file = tmp_path / "config.json"
    file.write_text(file.read_text().replace('"preset"', '"rung"'))
    assert _check_run_facts(options(tmp_path), SMOKE) == config
    with pytest.raises(ValueError, match=r"other settings \(seed 0, now 1\): give those, or another --run-dir"):
        _check_run_facts(options(tmp_path, "--seed", "1"), SMOKE)
    for name, given in (("trained by '', now 'trl'", ["--trainer", "trl"]), ("adapter", ["--adapter", str(tmp_path)])):
        with pytest.raises(ValueError, match=name):
            _check_run_facts(options(tmp_path, *given), SMOKE)
    del config["trained by"], config["adapter"]
    file.write_text(json.dumps(config))
    _check_run_facts(options(tmp_path, "--trainer", "trl"), SMOKE)
    file.write_bytes(b"")
    with pytest.raises(ValueError, match=r"config.json can't be read .*; bring it back from a copy, or give another"):
        _check_run_facts(options(tmp_path), SMOKE)


def test_a_run_of_another_command_is_not_mixed_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rollouts.jsonl").touch()
    with pytest.raises(SystemExit, match="2"):
        main(["--run-dir", str(tmp_path)])
    assert "holds a run of another command; give another --run-dir" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["rollouts.jsonl"]


def test_two_processes_do_not_learn_in_one_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def learn(_: object) -> int:
        return 0

    monkeypatch.setattr("envs.lab.learn._learn", learn)
    with lock_directory(tmp_path), pytest.raises(SystemExit, match="2"):
        main(["--preset", "smoke", "--run-dir", str(tmp_path)])
    assert f"another process works in {tmp_path}; stop it, or give another --run-dir" in capsys.readouterr().err


def test_the_trainer_is_a_module_or_a_file_of_ones_own(tmp_path: Path) -> None:
    ours = _trainer_arguments(SMOKE, options(tmp_path), [])
    assert ours[:2] == ["-m", "envs.lab.trainer"]
    assert trainer.parse([*ours[2:], "--model", "x"]).sgd
    mine = tmp_path / "mine.py"
    mine.touch()
    assert _trainer_arguments(SMOKE, options(tmp_path, "--trainer", str(mine)), [])[0] == str(mine)
    assert _trainer_arguments(SMOKE, options(tmp_path, "--trainer", "trl"), [])[:2] == ["-m", "envs.lab.with_trl"]


@pytest.mark.parametrize("given", [[], ["--trainer", "trl"]])
@pytest.mark.parametrize("preset", ["laptop", "smoke"])
def test_the_trainer_trains_the_adapter_that_the_inference_server_begins_with(
    tmp_path: Path, preset: str, given: list[str]
) -> None:
    words = _trainer_arguments(PRESETS[preset], options(tmp_path, *given), ["--adapter", str(tmp_path)])
    adapted = trainer.parse([*words[2:], "--model", "x"])
    assert (adapted.lora, adapted.adapter) == (True, tmp_path)


def test_a_trainer_that_is_neither_named_nor_a_file_is_refused_with_those_that_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options(tmp_path, "--trainer", "verl")
    assert (
        "verl is no trainer's name and no file that is there; take trl or a trainer's file" in capsys.readouterr().err
    )


def test_a_trainer_of_others_is_refused_where_it_is_not_installed_or_gives_no_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envs.lab.learn.find_spec", lambda name: None)
    assert install("trl") in (_find_conflict(options(tmp_path, "--trainer", "trl")) or "")
    assert _find_conflict(options(tmp_path)) is None
    monkeypatch.setattr("envs.lab.learn.find_spec", lambda name: name)
    monkeypatch.setattr("envs.lab.learn.version", lambda name: "1.15.2")
    assert "made for 1.16, and 1.15.2 is installed" in (_find_conflict(options(tmp_path, "--trainer", "trl")) or "")
    monkeypatch.setattr("envs.lab.learn.version", lambda name: "1.16.0")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "needs a GPU" in (_find_conflict(options(tmp_path, "--trainer", "trl")) or ""), (
        "before an evaluation, not after it"
    )
    assert _find_conflict(options(tmp_path)) is None
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    for preset in ("smoke", "laptop"):
        assert _find_conflict(options(tmp_path, "--trainer", "trl", "--preset", preset)) is None
    assert "take smoke or laptop" in (_find_conflict(options(tmp_path, "--trainer", "trl", "--preset", "gpu")) or "")


def test_every_task_of_the_smoke_preset_is_there(tmp_path: Path) -> None:
    _write_tasks(PRESETS["smoke"], tmp_path / "tasks")
    written = {part: len(list((tmp_path / "tasks" / part).iterdir())) for part in ("train", "held-out")}
    assert written == dict(zip(("train", "held-out"), map(len, smoke.tasks()), strict=True))


async def test_an_option_of_evaluations_stands_in_place_of_the_presets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def evaluated(name: str, run_dir: Path, *words: str) -> None:
        asked.extend(words)
        (tmp_path / "eval-000002").mkdir()
        (tmp_path / "eval-000002/eval-0.json").write_text('{"tasks": []}')

    asked: list[str] = []
    monkeypatch.setattr("envs.lab.learn.run", evaluated)
    with pytest.raises(PartError):
        settings = {"env.eval_samples": 16, "env.tags": "of training"}
        await _evaluate(Parts(tmp_path), SMOKE, settings, Console(), tmp_path, 2)
    assert asked[-3:] == [
        "--env.eval_samples=16",
        "--env.eval_temperature=1.0",
        f"--env.run_dir={tmp_path / 'eval-000002'}",
    ]


async def test_an_evaluation_waits_for_the_weights_of_its_step(tmp_path: Path) -> None:
    class New:
        """A server that was just started: it has its first weights."""

        def __init__(self) -> None:
            self.loaded: list[int] = []

        async def has(self, folder: Path, version: int) -> bool:
            return version in self.loaded

        async def load(self, folder: Path, version: int) -> None:
            self.loaded.append(version)

    (tmp_path / "step-000003").mkdir()
    async with await _keep_current(Parts(tmp_path), server := New(), tmp_path, 3):
        assert server.loaded == [3]
    with pytest.raises(PartError, match="step-000003, and those of step 4 were to be evaluated"):
        await _keep_current(Parts(tmp_path), server, tmp_path, 4)


async def test_an_evaluation_in_which_nothing_could_be_judged_is_told_and_made_again(tmp_path: Path) -> None:
    written = tmp_path / "eval-000002" / "eval-0.json"
    written.parent.mkdir()
    written.write_text('{"tasks": []}')
    with pytest.raises(PartError, match=r"evaluate-2\.log says why. It is made again"):
        await _evaluate(Parts(tmp_path), SMOKE, {}, Console(), tmp_path, 2)
    assert not written.exists()


async def test_the_reward_rises_beyond_noise(run_api: RunAPI, tmp_path: Path) -> None:
    async with engine(str(await asyncio.to_thread(smoke.model, DEFAULT_CACHE)), 1024) as url:
        # By ten steps chance hid the rise once (p 0.06).
        steps = await learn(trainer, run_api.url, url, tmp_path / "out", *STEPS, "--steps", "14")
    found = risen(steps)
    assert found.last > found.first, found
    assert found.p_value < 0.05, found
    fresh = [step["mismatch_fresh"] for step in steps if "mismatch_fresh" in step]
    assert fresh and max(fresh) < 1e-3
    assert all(0.9 < step["ratio"] < 1.1 for step in steps if "ratio" in step)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("spoilt", [False, True], ids=["as it is", "masks shifted by one"])
async def test_a_function_learns_through_the_gateway_as_our_own_agent_does(
    run_api: RunAPI, tmp_path: Path, spoilt: bool
) -> None:
    with corrupted(trainer, None, shift if spoilt else None):
        async with engine(str(await asyncio.to_thread(smoke.model, DEFAULT_CACHE)), 1024) as url:
            more: Any = {"env_cls": FunctionLesson, "sandbox": "local"}
            steps = await learn(trainer, run_api.url, url, tmp_path / "out", *STEPS, **more)
    check_that_it_learnt(steps, spoilt)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore")  # of frameworks
@pytest.mark.parametrize(
    ("script", "spoilt"),
    [
        *[pytest.param(script, False, id=script.__name__) for script in SCRIPTS],
        *[pytest.param(script, True, id=f"{script.__name__}, masks shifted by one") for script in CONTROLS],
    ],
)
async def test_a_script_learns_unchanged(
    run_api: RunAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: Any, spoilt: bool
) -> None:
    # A helper of other tests has the name of a package.
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not path.endswith("tests/atropos_agent/gateway")])
    monkeypatch.delitem(sys.modules, "agents", raising=False)
    pytest.importorskip(SCRIPTS[script])
    with corrupted(trainer, None, shift if spoilt else None):
        async with engine(str(await asyncio.to_thread(smoke.model, DEFAULT_CACHE)), 1024) as url:
            more: Any = {"env_cls": script_lesson(script), "sandbox": "local"}
            # Its rollouts are two rows each, so that a step has half as many.
            longer = ("--steps", "20") if script is clients.smolagents else ()
            steps = await learn(trainer, run_api.url, url, tmp_path / "out", *STEPS, *longer, **more)
    check_that_it_learnt(steps, spoilt)


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("spoilt", [False, True], ids=["as it is", "masks shifted by one"])
async def test_an_agent_that_others_made_learns_in_containers(
    run_api: RunAPI, base_image: str, tmp_path: Path, spoilt: bool
) -> None:
    """mini-swe-agent, unmodified, as `learn --preset smoke --agent mini-swe-agent` does it."""
    model = await asyncio.to_thread(smoke.model, DEFAULT_CACHE, None, find_foreign_agent("mini-swe-agent"))
    _write_tasks(SMOKE, tmp_path / "tasks")
    more: Any = {"env_cls": SWEEnv, "model": model, "agent": "mini-swe-agent", "tasks": str(tmp_path / "tasks/train")}
    at_once = SMOKE.for_agent("mini-swe-agent").environment["env.max_concurrent_rollouts"]
    more |= {"max_token_length": 2048, "max_concurrent_rollouts": at_once}
    with corrupted(trainer, None, shift if spoilt else None):
        async with engine(str(model), 2048) as url:
            steps = await learn(trainer, run_api.url, url, tmp_path / "out", *STEPS, **more)
    check_that_it_learnt(steps, spoilt)


def check_that_it_learnt(steps: Sequence[dict[str, Any]], spoilt: bool) -> None:
    found = risen(steps)
    print(found, [step["reward"] for step in steps])
    fresh = [step["mismatch_fresh"] for step in steps if "mismatch_fresh" in step]
    if spoilt:
        assert found.p_wandering is not None and found.p_wandering > 0.01, found
        assert min(fresh) > 0.05, "each step says that rows and weights disagree"
    else:
        assert found.last > found.first and found.p_value < 0.05, found
        assert fresh and max(fresh) < 1e-3


def drop_logprobs(groups: Any) -> Any:
    return [{**group, "inference_logprobs": None} for group in groups]


def shuffle_scores(groups: Any) -> Any:
    spoilt = copy.deepcopy(groups)
    for group in spoilt:
        # A score a coin's toss: shuffling those of one group would leave some where they were.
        group["scores"] = [float(random.random() < 0.5) for _ in group["scores"]]
    return spoilt


WRONG: dict[str, tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None]] = {
    "masks shifted by one": (None, shift),
    "logprobs dropped": (drop_logprobs, None),
    "scores shuffled": (shuffle_scores, None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_signal_shows(run_api: RunAPI, tmp_path: Path, name: str) -> None:
    with corrupted(trainer, *WRONG[name]):
        async with engine(str(await asyncio.to_thread(smoke.model, DEFAULT_CACHE)), 1024) as url:
            steps = await learn(trainer, run_api.url, url, tmp_path / "out", *STEPS)
    found = risen(steps)
    # Not p_value: what is pushed at random wanders.
    assert found.p_wandering is not None and found.p_wandering > 0.01, found
    fresh = [step["mismatch_fresh"] for step in steps if "mismatch_fresh" in step]
    match name:
        case "masks shifted by one":
            assert min(fresh) > 0.05, "each step says that rows and weights disagree"
        case "logprobs dropped":
            assert not fresh, "nothing was trained on"
            assert all(step["left_out"] == {"invalid": SMOKE.batch_size} for step in steps)
        case _:
            assert max(fresh) < 1e-3, "the rows are right, it is the scores that are not"
