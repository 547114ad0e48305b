"""Which groups are worked on: tasks are drawn in order, put back while rollouts are missing, and set aside when
they fail too often. Each step is in the journal before it counts, so that a later start goes on from there."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from envs.records.disk import until_room
from envs.records.read import read_at
from envs.records.redaction import Redactor
from envs.running.failures import evidence, write_evidence
from envs.running.journal import Journal, Unfinished
from envs.tasks.sampler import TaskOrder
from envs.types import InfraError, Rollout, Task

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Draw:
    """A task that was drawn. number: its group's; members: those judged so far, by slot."""

    number: int
    task: Task
    members: Mapping[int, Rollout] = field(default_factory=dict)
    resampled: int = 0


class Draws:
    """The tasks of a run, one group after another. `open` makes one.

    task_failures: groups that may be put back for a task before it is set aside.
    """

    def __init__(
        self, journal: Journal, tasks: Sequence[Task], order: TaskOrder, *, run_dir: Path, task_failures: int
    ) -> None:
        self._journal, self._tasks, self._order = journal, tasks, order
        self._run_dir, self._task_failures = run_dir, task_failures
        self._last: int | None = None
        self._unfinished: deque[Draw] = deque()
        """Drawn before: put back, or left by an earlier start."""
        self._open: set[int] = set()
        """Numbers of the groups about which nothing is decided yet."""
        self._faults: Counter[str] = Counter()
        self._evidence: dict[str, deque[dict[str, Any]]] = {}

    @classmethod
    async def open(
        cls, journal: Journal, tasks: Sequence[Task], *, seed: int, run_dir: Path, task_failures: int
    ) -> Draws:
        """The draws of a new run, or those of an earlier start in the same directory, continued."""
        names = "\n".join(sorted(task.id for task in tasks))
        first = await journal.order_from(hashlib.sha256(names.encode()).hexdigest())
        order = TaskOrder(tasks, seed=seed, first=first)
        draws = cls(journal, tasks, order, run_dir=run_dir, task_failures=task_failures)
        draws._faults = await journal.faults()
        await draws._take_up({task.id: task for task in tasks})
        return draws

    async def next(self) -> Draw:
        """The next group: those drawn before first, then every task in a new random order each epoch.
        Raises InfraError when all were set aside."""
        while True:
            if all(self.is_set_aside(task) for task in self._tasks):
                raise InfraError("task", f"every task was set aside; see {self._evidence_path}")
            if self._unfinished:
                draw = self._unfinished.popleft()
            else:
                number = await self._journal.start_group(lambda number: self._order[number].id)
                self._open.add(number)
                self._last = number
                draw = Draw(number, self._order[number])
            if not self.is_set_aside(draw.task):
                return draw
            await self.close(draw, "skipped")

    def coming(self) -> Task | None:
        """The task of the group after this one, where that is known and not set aside."""
        if self._unfinished:
            task = self._unfinished[0].task
        elif self._last is not None:
            task = self._order[self._last + 1]
        else:
            return None
        return None if self.is_set_aside(task) else task

    async def out_of_turn(self, task: Task) -> Draw:
        """A group of this very task."""
        number = await self._journal.start_group(lambda _: task.id)
        self._open.add(number)
        return Draw(number, task)

    def again(self, draw: Draw) -> None:
        """Draw it once more, with the members that it has, before new ones."""
        self._unfinished.append(draw)

    async def restart(self, draw: Draw) -> None:
        """Draw it once more, without its members."""
        await self._journal.restart_group(draw.number)
        self.again(replace(draw, members={}, resampled=draw.resampled + 1))

    def is_open(self, draw: Draw) -> bool:
        """Whether nothing is decided about its group yet."""
        return draw.number in self._open

    async def close(self, draw: Draw, state: str) -> None:
        """Its group has come to an end: a state of the journal's."""
        await self._journal.finish_group(draw.number, state)
        self.forget(draw)

    def forget(self, draw: Draw) -> None:
        """Its end is in the journal already."""
        self._open.discard(draw.number)
        self._evidence.pop(draw.task.id, None)

    def note(self, task: Task, error: InfraError) -> None:
        """Keep what a failure of ours left behind; it is written down when the task is set aside."""
        self._evidence.setdefault(task.id, deque(maxlen=4)).append(evidence(error))

    def is_set_aside(self, task: Task) -> bool:
        """Whether the task has failed too often to be drawn."""
        return bool(self._faults[task.id] >= self._task_failures)

    async def blame(self, draw: Draw, redactor: Redactor) -> bool:
        """Count a failed group against its task. Returns whether that sets the task aside, and closes the group."""
        task = draw.task
        self._faults[task.id] = await self._journal.count_fault(task.id)
        if not self.is_set_aside(task):
            return False
        path, failures = self._evidence_path, list(self._evidence.get(task.id, ()))
        logger.error(
            "task %s is set aside: it failed by our fault %d times; see %s", task.id, self._faults[task.id], path
        )
        await until_room(path, lambda: write_evidence(path, task, failures, redactor))
        await self.close(draw, "failed")
        return True

    @property
    def _evidence_path(self) -> Path:
        return self._run_dir / "set-aside.jsonl"

    async def _take_up(self, tasks: Mapping[str, Task]) -> None:
        for left in await self._journal.unfinished():
            if left.task in tasks:
                members = await asyncio.to_thread(self._members_of, left, tasks[left.task])
                self._open.add(left.number)
                self._unfinished.append(Draw(left.number, tasks[left.task], members))
            else:
                await self._journal.finish_group(left.number, "gone")
        if self._unfinished:
            kept = sum(len(draw.members) for draw in self._unfinished)
            logger.info("continuing %d groups, %d rollouts of which are there", len(self._unfinished), kept)

    def _members_of(self, left: Unfinished, task: Task) -> dict[int, Rollout]:
        """The rollouts of an unfinished group that were judged before."""
        found = {}
        for slot, place in left.members.items():
            try:
                saved = read_at(self._run_dir, place)
            except (OSError, ValueError) as error:
                logger.warning("a rollout of task %s is made again: %s", task.id, error)
                continue
            found[slot] = Rollout(saved.id, task, saved.result, saved.verdict, saved.timings_s, saved.metadata)
        return found
