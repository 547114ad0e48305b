"""The sizes of a learning run."""

from __future__ import annotations

from pathlib import Path

import pytest

from envs.lab.learn import _environment, _parser, _write_tasks
from envs.lab.parts import flags
from envs.lab.presets import PRESETS
from envs.reading import read_options
from envs.swe.config import SWEEnvConfig
from envs.swe.environment import SWEEnv


def test_evaluations_are_before_within_and_after() -> None:
    assert PRESETS["laptop"].milestones == [0, 12, 24]
    assert PRESETS["smoke"].milestones[0] == 0
    assert all(preset.milestones[-1] == preset.steps for preset in PRESETS.values())


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_the_held_out_tasks_are_the_same_for_every_seed(tmp_path: Path, preset: str) -> None:
    held_out = set()
    for seed in range(3):
        options = _parser().parse_args(["--preset", preset, "--seed", str(seed), "--run-dir", str(tmp_path)])
        _write_tasks(PRESETS[preset], options.run_dir / "tasks")
        settings = _environment(PRESETS[preset], options, "http://localhost:9001/v1")
        _, tasks = SWEEnv.load_tasks(read_options(SWEEnvConfig, flags(settings)).env)
        held_out.add(frozenset(task.id for task in tasks))
    assert len(held_out) == 1 and len(*held_out) >= 5, "and enough of them to carry an interval"
