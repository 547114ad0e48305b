"""The sizes of a learning run."""

from __future__ import annotations

from envs.lab.presets import PRESETS


def test_evaluations_are_before_within_and_after() -> None:
    assert PRESETS["laptop"].milestones == [0, 12, 24]
    assert PRESETS["smoke"].milestones[0] == 0
    assert all(preset.milestones[-1] == preset.steps for preset in PRESETS.values())
