"""Compare two runs task by task: solve rates, their difference, and its share beyond chance."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from envs.records.comparison import Comparison, NoEvaluation, Rates, compare
from envs.records.stats import Interval, wilson

SHOWN = 500
"""Listed tasks of a comparison, those with the largest differences."""


@dataclass(frozen=True, slots=True)
class TaskRate:
    """A task's solve rate in one run, with its 95% interval (Wilson). reward: the mean."""

    rollouts: int
    solved: int
    reward: float

    @property
    def rate(self) -> float:
        """Return the solved share."""
        return self.solved / self.rollouts

    @property
    def interval(self) -> Interval:
        """Return the 95% interval."""
        return Interval(*wilson(self.solved, self.rollouts))


@dataclass(frozen=True, slots=True)
class ComparedTask:
    """A task in both runs. apart: their intervals don't overlap."""

    task: str
    first: TaskRate
    second: TaskRate

    @property
    def difference(self) -> float:
        """Return by how much more is solved in the second."""
        return self.second.rate - self.first.rate

    @property
    def apart(self) -> bool:
        """Tell whether the intervals don't overlap."""
        one, other = self.first.interval, self.second.interval
        return one.high < other.low or other.high < one.low


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Two runs. overall: over their common tasks; None without any."""

    overall: Comparison | None
    tasks: Sequence[ComparedTask]
    left_out: int

    @property
    def graded(self) -> bool:
        """Tell whether rewards say more than the solve rates."""
        return any(abs(one.reward - one.rate) > 1e-9 for task in self.tasks for one in (task.first, task.second))


def compare_runs(first: sqlite3.Connection, second: sqlite3.Connection, evaluating: bool | None) -> RunComparison:
    """Compare the indexed rollouts of two runs. evaluating: only evaluations, or only training; None for both."""
    one, other = (_rates(db, evaluating) for db in (first, second))
    try:
        overall = compare(_all(one), _all(other))
    except NoEvaluation:
        return RunComparison(None, (), 0)
    tasks = [ComparedTask(task, one[task], other[task]) for task in one.keys() & other.keys()]
    tasks.sort(key=lambda task: (-abs(task.difference), task.task))
    return RunComparison(overall, tasks[:SHOWN], max(0, len(tasks) - SHOWN))


def _rates(db: sqlite3.Connection, evaluating: bool | None) -> dict[str, TaskRate]:
    query = "SELECT task, sum(rollouts), sum(solved), sum(reward) FROM tasks WHERE evaluating IN (?, ?) GROUP BY task"
    kinds = (0, 1) if evaluating is None else (evaluating, evaluating)
    return {task: TaskRate(made, solved, reward / made) for task, made, solved, reward in db.execute(query, kinds)}


def _all(rates: dict[str, TaskRate]) -> Rates:
    return Rates({task: rate.rate for task, rate in rates.items()}, sum(rate.rollouts for rate in rates.values()), {})
