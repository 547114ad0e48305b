"""Follow the share of rollouts with signs of cheating over the trainer's steps, and notice a rise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

RECENT_STEPS = 5
_ENOUGH = 20
"""Least rollouts for a rate."""
_LEAST = 0.05
_TIMES = 2.0


def cheat_rate(by_step: Iterable[Mapping[str, int]]) -> float | None:
    """Return the share of rollouts with signs; None for too few. by_step: counts of `rollouts` and `cheated`."""
    counts = list(by_step)
    rollouts = sum(count.get("rollouts", 0) for count in counts)
    return sum(count.get("cheated", 0) for count in counts) / rollouts if rollouts >= _ENOUGH else None


def find_rise(by_step: Mapping[str, Mapping[str, int]]) -> tuple[float, float] | None:
    """Return the rate before and in the last steps, if it has at least doubled and is no trifle; None otherwise."""
    steps = sorted(by_step, key=int)
    before = cheat_rate(by_step[step] for step in steps[:-RECENT_STEPS])
    now = cheat_rate(by_step[step] for step in steps[-RECENT_STEPS:])
    if before is None or now is None or now < max(_LEAST, _TIMES * before):
        return None
    return before, now
