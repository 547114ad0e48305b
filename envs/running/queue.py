"""The task queue: the order of the groups.

Tasks are drawn in order. A group whose rollouts can't be had now is put back with its present ones. A task with too
many infrastructure failures is quarantined. Each step is in the journal before it counts, so a later start continues
there.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sqlite3
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from envs.records.read import read_at
from envs.resources import Resource
from envs.running import group as groups
from envs.running.failures import FailureLog
from envs.running.group import Group, UnfinishedGroup
from envs.running.journal import Journal
from envs.running.mix import ALONE, Mix
from envs.running.resources import Resources, next_number
from envs.tasks.sampler import Draw, TaskSampler
from envs.types import BadTask, Failure, GroupState, InfraError, Rollout, Task

logger = logging.getLogger(__name__)


class TaskQueue:
    """The groups of a run, one after another. `open` makes one.

    task_failures: groups of a task that may be put back before it is quarantined.
    """

    def __init__(
        self,
        journal: Journal,
        tasks: Sequence[Task],
        order: TaskSampler,
        failures: FailureLog,
        task_failures: int,
        resources: Resources | None = None,
    ) -> None:
        self._journal, self._tasks, self._order = journal, tasks, order
        self._failures, self._task_failures = failures, task_failures
        self._resources = resources
        self._last: int | None = None
        self._put_back: deque[Group] = deque()
        """Groups to be gone on with, also of an earlier start."""
        self._agent_of: Callable[[Task, int], str] = lambda task, number: ""
        self._faults: Counter[str] = Counter()

    @classmethod
    async def open(
        cls,
        journal: Journal,
        tasks: Sequence[Task],
        failures: FailureLog,
        *,
        seed: int,
        task_failures: int,
        mix: Mix = ALONE,
        resources: Resources | None = None,
    ) -> TaskQueue:
        """Open the queue of a new run, or the continued queue of an earlier start in the same directory.

        mix: the agents of the run. resources: the run's, for the groups."""
        names = "\n".join(sorted(task.id for task in tasks))
        first = await _first_number(journal, hashlib.sha256(names.encode()).hexdigest())
        order = TaskSampler(tasks, seed=seed, first=first)
        queue = cls(journal, tasks, order, failures, task_failures, resources)
        queue._agent_of = lambda task, number: mix.pick(task, seed, number)
        queue._faults = await journal.write(lambda db: Counter(dict(db.execute("SELECT task, count FROM faults"))))
        await queue._resume_groups({task.id: task for task in tasks})
        return queue

    async def next(self) -> Group:
        """Return the next group: those put back first, then a newly drawn one.
        Raises InfraError when all tasks are quarantined."""
        while True:
            if all(self.is_quarantined(task) for task in self._tasks):
                last = f"; the last failure: {why}" if (why := self._failures.breaker.last) else ""
                raise InfraError(Failure.TASK, f"every task is quarantined; see {self._failures.path}{last}")
            if self._put_back:
                group = self._put_back.popleft()
            else:
                group = await Group.draw(self._journal, self._draw, self._resources)
                self._last = group.number
            if not self.is_quarantined(group.task):
                return group
            await group.close(GroupState.SKIPPED, "its task is quarantined", self._failures.path.name)

    def next_task(self) -> Task | None:
        """Return the task of the group after this one, if it is known and not quarantined."""
        if self._put_back:
            task = self._put_back[0].task
        elif self._last is not None:
            task = self._order.draw(self._last + 1)
        else:
            return None
        return None if self.is_quarantined(task) else task

    def task(self, name: str) -> Task:
        """Return the task with this id. Raises BadTask."""
        for task in self._tasks:
            if task.id == name:
                return task
        raise BadTask(f"no task of this run has the id {name!r}")

    async def request(self, task: Task, name: str, size: int) -> Group:
        """Return the group that is asked for under a name: a new one, or an unfinished one. It is never drawn.

        Raises ValueError if another group has the name or a trainer has confirmed it, InfraError if its task is
        quarantined."""
        left = await groups.find_requested(self._journal, name)
        if left is None:
            if self.is_quarantined(task):
                raise InfraError(Failure.TASK, f"task {task.id} is quarantined; see {self._failures.path}")
            return await Group.ask(self._journal, task, name, size, self._resources)
        if (left.task, left.size) != (task.id, size):
            raise ValueError(f"group {name!r} has {left.size} members of task {left.task}; ask under another name")
        if left.state is GroupState.CONFIRMED:
            raise ValueError(f"group {name!r} was trained on and confirmed; ask under another name")
        if left.state not in (GroupState.WORKING, GroupState.TAKEN):
            raise InfraError(Failure.TASK, f"group {name!r} can't be had: {left.reason}")
        members = await asyncio.to_thread(_read_members, self._journal.path.parent, left, task)
        begun = await self._resources_of(left.number)
        group = Group(self._journal, left.number, task, members, name=name, size=size, resources=begun)
        group.state = left.state
        return group

    def put_back(self, group: Group) -> None:
        """Draw a group once more, with its present members, before new ones. A group that was asked for is left to its
        caller."""
        if group.name is None:
            self._put_back.append(group)

    def is_quarantined(self, task: Task) -> bool:
        """Tell whether the task has failed too often to be drawn."""
        return self._faults[task.id] >= self._task_failures

    def _draw(self, number: int) -> Draw:
        """Draw the task of a group; the reason names the agent in a run of several."""
        task = self._order.draw(number)
        agent = self._agent_of(task, number)
        return Draw(task, f"agent {agent}" if agent else "")

    async def give_up(self, group: Group) -> None:
        """Take back a group that can't be completed now: its task is blamed, and quarantined when this was once too
        often, or when it can't be made as it is; else the group is put back. While the circuit breaker is open our
        surroundings are at fault, not the task."""
        task, path = group.task, self._failures.path
        if (why := self._failures.impossible_reason(task)) is not None:
            self._faults[task.id] = await self._count_faults(task, self._task_failures)
        elif not self._failures.breaker.is_open:
            self._faults[task.id] = await self._count_faults(task, 1)
        if not self.is_quarantined(task):
            self.put_back(group)
            return
        failed = (
            f"it had infrastructure failures {self._faults[task.id]} times"
            if why is None
            else f"it can't be made: {why}"
        )
        logger.error("task %s is quarantined: %s; see %s", task.id, failed, path)
        await self._failures.write(task)
        reason = f"its task is quarantined: {failed}"
        await group.close(GroupState.QUARANTINED, reason, path.name)
        self._failures.forget(task)

    async def _resources_of(self, number: int) -> Mapping[str, Resource]:
        """Return the resources of a group that an earlier start began."""
        resources = self._resources
        return {} if resources is None else await self._journal.read(lambda db: resources.at(db, number))

    async def _count_faults(self, task: Task, times: int) -> int:
        def work(db: sqlite3.Connection) -> int:
            insert = "INSERT INTO faults VALUES (?, ?) ON CONFLICT (task) DO UPDATE SET count = count + excluded.count"
            db.execute(insert, (task.id, times))
            return int(db.execute("SELECT count FROM faults WHERE task = ?", (task.id,)).fetchone()[0])

        return await self._journal.write(work)

    async def _resume_groups(self, tasks: Mapping[str, Task]) -> None:
        """Continue the groups that an earlier start left."""
        for left in await groups.unfinished_groups(self._journal):
            if left.task in tasks:
                task = tasks[left.task]
                members = await asyncio.to_thread(_read_members, self._journal.path.parent, left, task)
                begun = await self._resources_of(left.number)
                self._put_back.append(Group(self._journal, left.number, task, members, resources=begun))
            else:
                await groups.lose_task(self._journal, left.number)
        if self._put_back:
            kept = sum(len(group.members) for group in self._put_back)
            logger.info("continuing %d groups, %d rollouts of which are there", len(self._put_back), kept)


async def _first_number(journal: Journal, tasks: str) -> int:
    """Return the number of the first group in the present order of tasks; another set of `tasks` (a digest) begins a
    new order."""

    def work(db: sqlite3.Connection) -> int:
        known = db.execute("SELECT value FROM run WHERE key = 'order'").fetchone()
        digest, _, first = known[0].partition("@") if known else ("", "", "0")
        if digest != tasks:
            if digest:
                logger.warning("the tasks are not those of the earlier start; a new order of tasks begins")
            first = str(next_number(db))
            db.execute("INSERT OR REPLACE INTO run VALUES ('order', ?)", (f"{tasks}@{first}",))
        return int(first)

    return await journal.write(work)


def _read_members(run_dir: Path, left: UnfinishedGroup, task: Task) -> dict[int, Rollout]:
    """Read the already judged rollouts of an unfinished group."""
    found = {}
    for member, place in left.members.items():
        try:
            saved = read_at(run_dir, place)
            if saved.digest not in ("", task.digest):
                raise ValueError("the task has changed since")
        except (OSError, ValueError) as error:
            logger.warning("a rollout of task %s is made again: %s", task.id, error)
            continue
        kept = (saved.verdict, saved.reward, saved.seat, saved.timings_s, saved.work)
        found[member] = Rollout(saved.id, task, saved.result, *kept)
    return found
