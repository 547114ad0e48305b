"""The sizes of a learning run."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from envs.agents.naming import FOREIGN
from envs.lab import learn
from envs.lab.kinds import EASY
from envs.lab.learn import PRACTICE_SEED, PRACTICE_TASKS, _environment_options, _write_tasks
from envs.lab.parsers import learn_parser
from envs.lab.parts import format_flags
from envs.lab.presets import PRESETS, Preset
from envs.lab.recipes import RECIPES
from envs.lab.synthetic import examples
from envs.options.reading import read_options
from envs.swe.config import SWEEnvConfig
from envs.swe.environment import SWEEnv
from envs.types import Task


def test_evaluations_are_before_within_and_after() -> None:
    assert PRESETS["laptop"].milestones == [0, 12, 24]
    assert PRESETS["smoke"].milestones[0] == 0
    assert all(preset.milestones[-1] == preset.steps for preset in PRESETS.values())


@pytest.fixture(scope="module")
def run_dirs(of_all_workers: Path) -> Callable[[str, str | None], Path]:
    """The directory of a run of a preset through an agent, with its tasks, which are written once for all presets that
    have the same, and for all workers."""

    def run_dir(name: str, agent: str | None) -> Path:
        preset = PRESETS[name].for_agent(agent)
        folder = of_all_workers / f"preset-{preset.tasks}-{preset.held_out}"
        folder.mkdir(exist_ok=True)
        with (folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _write_tasks(preset, folder / "tasks")
        return folder

    return run_dir


LONG = [(preset, agent) for preset in ("laptop", "gpu-small") for agent in (None, "mini-swe-agent")]
"""Presets and agents whose tasks take long to write and to read; the next test reads some."""


def tasks(preset: Preset, run_dir: Path, *given: str) -> tuple[Sequence[Task], Sequence[Task]]:
    """The tasks to train and to evaluate on."""
    options = learn_parser().parse_args(["--run-dir", str(run_dir), *given])
    settings = _environment_options(preset, options, "http://localhost:9001/v1")
    return SWEEnv.load_tasks(read_options(SWEEnvConfig, format_flags(settings)).env)


@pytest.mark.parametrize(
    "preset, agent",
    [
        pytest.param(name, agent, marks=[pytest.mark.slow] * ((name, agent) in LONG))
        for agent in ("mini-swe-agent", None)
        for name in sorted(PRESETS)
    ],
)
def test_the_held_out_tasks_are_the_same_for_every_seed(
    run_dirs: Callable[[str, str | None], Path], preset: str, agent: str | None
) -> None:
    chosen, run_dir = PRESETS[preset].for_agent(agent), run_dirs(preset, agent)
    held_out = {frozenset(task.id for task in tasks(chosen, run_dir, "--seed", str(seed))[1]) for seed in (0, 5)}
    assert len(held_out) == 1 and len(*held_out) >= 5, "and enough of them to carry an interval"


def test_through_an_agent_tasks_are_held_out_that_nobody_saw(run_dirs: Callable[[str, str | None], Path]) -> None:
    run_dir = run_dirs("laptop", "mini-swe-agent")
    preset = PRESETS["laptop"].for_agent("mini-swe-agent")
    train, held_out = tasks(preset, run_dir)
    assert {task.id for task in held_out} == {task.id for task in tasks(preset, run_dir, "--seed", "5")[1]}
    assert len(held_out) == 40 and {tag for task in held_out for tag in task.tags} >= set(EASY)
    assert all(set(task.tags) & set(EASY) for task in (*train, *held_out))
    told = [task.instruction for task in held_out]
    seen = {task.instruction for task in train} | {task.instruction for task in examples(PRACTICE_TASKS, PRACTICE_SEED)}
    for recipe in RECIPES.values():
        seen |= {task.instruction for task in examples(recipe.examples, recipe.seed, recipe.kinds)}
    assert len(set(told)) == 40 and not seen & set(told)
    practised, other = (
        {path.read_text().splitlines()[-1] for path in run_dir.glob(f"tasks/{part}/*/solution/solve.sh")}
        for part in ("train", "held-out")
    )
    assert len(other) == 40 and not practised & other, "other commands, too"


def test_a_task_that_a_warm_start_saw_is_not_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert learn._unseen_tasks(20)
    same = SimpleNamespace(examples=20, seed=learn.HELD_OUT_SEED, kinds=EASY)
    monkeypatch.setattr(learn, "RECIPES", {"same": same})
    assert not learn._unseen_tasks(20)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_our_own_agent_by_its_name_is_no_other(name: str) -> None:
    preset = PRESETS[name]
    assert preset.for_agent("atropos") is preset.for_agent(None) is preset.for_agent("") is preset


def test_an_agent_changes_fields_and_adds_options() -> None:
    preset = PRESETS["laptop"].for_agent("mini-swe-agent")
    assert (preset.milestones, preset.eval_samples, preset.batch_size) == ([0, 10], 1, 32)
    assert preset.trainer == {**PRESETS["laptop"].trainer, "autocast": ""}
    assert preset.environment["env.max_token_length"] == 4096
    assert preset.environment["env.agent"] == "mini-swe-agent"
    assert "autocast" not in PRESETS["laptop"].trainer
    own_class = PRESETS["laptop"].for_agent("atropos_agent.agent:AtroposAgent")
    assert own_class.environment["env.tools"] == PRESETS["laptop"].environment["env.tools"]
    assert own_class.steps == 24 and own_class.trainer == PRESETS["laptop"].trainer


def test_an_agents_file_is_found_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("from envs.agents.pi import AGENT")
    monkeypatch.chdir(tmp_path)
    assert PRESETS["smoke"].for_agent("mine.py").environment["env.agent"] == str(tmp_path / "mine.py")


@pytest.mark.parametrize("agent", sorted(FOREIGN))
@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_goes_through_every_agent(name: str, agent: str) -> None:
    preset = PRESETS[name].for_agent(agent)
    assert preset.environment["env.agent"] == agent
    assert PRESETS[name].environment.keys() - preset.environment.keys() <= {"env.tools"}
    assert "env.tools" not in preset.environment, "it has its own"
