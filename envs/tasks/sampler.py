"""The order of tasks: every task once an epoch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from envs.types import Task


@dataclass(frozen=True, slots=True)
class Draw:
    """A drawn task. reason: what was drawn with it, in words; "" for nothing."""

    task: Task
    reason: str = ""


class TaskSampler:
    """Every task once an epoch, in a new random order each, the same on every start.

    tasks: not empty. first: the number of the first group in this order.
    """

    def __init__(self, tasks: Sequence[Task], *, seed: int, first: int = 0) -> None:
        self._tasks = tasks
        self._seed = seed
        self._first = first
        self._epoch = -1
        self._shuffled: list[Task] = []

    def draw(self, number: int) -> Task:
        """Return the task of the group with this number, the same in each call."""
        epoch, place = divmod(number - self._first, len(self._tasks))
        if epoch != self._epoch:
            rng = random.Random(f"{self._seed}/{self._first}/{epoch}")
            self._epoch, self._shuffled = epoch, rng.sample(list(self._tasks), len(self._tasks))
        return self._shuffled[place]
