"""The order of tasks: every task once an epoch, or those more often from which something is to be learnt."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, lgamma
from typing import Protocol

from envs.types import Task

EXPLORED = 0.05
"""Share of the draws by `SignalSampler` in which all tasks are as likely."""
SHARPNESS = 4
"""Power of the chance of different rewards that is a task's weight."""
FADING = 0.5
"""Weight of a task's earlier rewards, beside those of its group after them."""
PRIOR = 0.5
"""Rollouts of reward 0, and as many of reward 1, that are assumed of every task."""


@dataclass(frozen=True, slots=True)
class Draw:
    """A drawn task. reason: why this one; "" if it was its turn."""

    task: Task
    reason: str = ""


class Sampler(Protocol):
    """Which task each group has, by the group's number. A number asked for again has the same task."""

    def draw(self, number: int, usable: Callable[[Task], bool]) -> Draw:
        """Return the task of the group with this number. usable: whether a task can be drawn at all."""
        ...

    def note(self, task: str, rewards: Sequence[float]) -> None:
        """Take notice of the rewards of a complete group."""
        ...


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

    def draw(self, number: int, usable: Callable[[Task], bool] = lambda _: True) -> Draw:
        """See `Sampler`. Unusable tasks keep their turn, so that the order stays."""
        epoch, place = divmod(number - self._first, len(self._tasks))
        if epoch != self._epoch:
            rng = random.Random(f"{self._seed}/{self._first}/{epoch}")
            self._epoch, self._shuffled = epoch, rng.sample(list(self._tasks), len(self._tasks))
        return Draw(self._shuffled[place])

    def note(self, task: str, rewards: Sequence[float]) -> None:
        """See `Sampler`. The order does not depend on rewards."""


class SignalSampler:
    """Tasks by the chance that the rewards of their next group differ.

    The chance follows from the rewards of a task's latest groups (see `chance_of_signal`). A task that was always or
    never solved is drawn rarely, and comes back: some draws are made from all tasks alike.

    tasks: not empty. group_size: rollouts of a group. earlier: (task, rewards) of the run's groups so far, in order.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        seed: int,
        group_size: int,
        earlier: Iterable[tuple[str, Sequence[float]]] = (),
    ) -> None:
        self._tasks, self._seed, self._size = tasks, seed, group_size
        self._counts: dict[str, Mapping[float, float]] = defaultdict(dict)
        self._last: dict[str, Sequence[float]] = {}
        unknown = chance_of_signal({}, group_size)
        self._chances = {task.id: unknown for task in tasks}
        self._drawn: dict[int, Draw] = {}
        for task, rewards in earlier:
            self.note(task, rewards)

    def draw(self, number: int, usable: Callable[[Task], bool] = lambda _: True) -> Draw:
        """See `Sampler`."""
        known = self._drawn.get(number)
        if known is None or not usable(known.task):
            self._drawn = {earlier: draw for earlier, draw in self._drawn.items() if earlier >= number - 1}
            known = self._drawn[number] = self._new(random.Random(f"{self._seed}/{number}"), usable)
        return known

    def note(self, task: str, rewards: Sequence[float]) -> None:
        """See `Sampler`. Rewards of unknown tasks are left out."""
        if task not in self._chances:
            return
        counts = defaultdict(float, {value: FADING * count for value, count in self._counts[task].items()})
        for reward in rewards:
            counts[reward] += 1
        self._counts[task], self._last[task] = counts, rewards
        self._chances[task] = chance_of_signal(counts, self._size)

    def _new(self, rng: random.Random, usable: Callable[[Task], bool]) -> Draw:
        tasks = [task for task in self._tasks if usable(task)] or list(self._tasks)
        if rng.random() < EXPLORED:
            return Draw(rng.choice(tasks), "explored: all tasks were as likely")
        (task,) = rng.choices(tasks, [self._chances[task.id] ** SHARPNESS for task in tasks])
        last = self._last.get(task.id)
        seen = f"last mean {sum(last) / len(last):.2f}" if last else "not seen yet"
        return Draw(task, f"chance of different rewards {self._chances[task.id]:.2f}, {seen}")


def chance_of_signal(counts: Mapping[float, float], size: int) -> float:
    """Return the chance that not all of `size` rollouts get one reward.

    counts: how many earlier rollouts got each reward. Each reward's rate is unknown; by a Dirichlet distribution over
    the rewards that were seen, and 0 and 1, all of `size` get the same with the chance computed here exactly."""
    seen = {0.0: PRIOR, 1.0: PRIOR}
    for reward, count in counts.items():
        seen[reward] = seen.get(reward, 0.0) + count
    total = sum(seen.values())
    shift = lgamma(total) - lgamma(total + size)
    return max(0.0, 1.0 - sum(exp(lgamma(count + size) - lgamma(count) + shift) for count in seen.values()))
