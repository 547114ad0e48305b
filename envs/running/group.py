"""A group: the rollouts of one task that are scored together, from the draw to the end.

Its row in the journal has its number, its task, its state, the reason of the state, and the place of the evidence:

    working ──► outbox ──► delivered         confirmed by the trainer API
       │          └──────► stale, refused, uncertain, corrupt    kept in `aside/`, never sent again
       ├──► taken ──► confirmed              a trainer in this process has it; has said that it is done with it
       ├──► saved                            written to the file of groups by `process`
       ├──► equal, empty                     dropped: all rewards are equal; or no row was sound
       └──► quarantined, skipped, gone       its task was quarantined now or before, or is no longer there

A group that was taken and not confirmed is open again at the next start: it is given again, under the same name.

All decisions about a group are made here. The functions with a connection are for callers that know a group
only by its number and change other tables in the same transaction.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from envs.records.atif import Place
from envs.resources import Resource
from envs.running.journal import Journal
from envs.running.resources import Resources, next_number
from envs.tasks.sampler import Draw
from envs.types import GroupState, Rollout, Task

UNMADE = (GroupState.WORKING, GroupState.QUARANTINED, GroupState.SKIPPED, GroupState.GONE)
"""States of groups that were not completed."""


class Group:
    """One task's rollouts. Made by `draw`, `ask` and `unfinished_groups`.

    number: unique in the run. members: the judged rollouts so far, by their place in the group.
    name, size: its name and its number of members, if it was asked for; None for one of the run's own order.
    resources: the versions of the run's resources for all its members, by name.
    resampled: how often it was made again because its rewards were equal.
    """

    def __init__(
        self,
        journal: Journal,
        number: int,
        task: Task,
        members: Mapping[int, Rollout] | None = None,
        *,
        name: str | None = None,
        size: int | None = None,
        resources: Mapping[str, Resource] | None = None,
    ) -> None:
        self._journal = journal
        self.number = number
        self.task = task
        self.members = dict(members or {})
        self.name = name
        self.size = size
        self.resources = dict(resources or {})
        self.resampled = 0
        self.state = GroupState.WORKING

    @classmethod
    async def draw(cls, journal: Journal, drawn: Callable[[int], Draw], resources: Resources | None = None) -> Group:
        """Begin the next group. drawn: gives the task of a group's number. resources: the run's."""

        def work(db: sqlite3.Connection) -> Group:
            draw = drawn(next_number(db))
            number = _insert(db, draw.task)
            if draw.reason:
                db.execute("INSERT INTO draws VALUES (?, ?)", (number, draw.reason))
            return cls(journal, number, draw.task, resources=_begin_resources(db, number, resources))

        return await journal.write(work)

    @classmethod
    async def ask(cls, journal: Journal, task: Task, name: str, size: int, resources: Resources | None = None) -> Group:
        """Begin a group of `size` members under a new name. resources: the run's."""

        def work(db: sqlite3.Connection) -> Group:
            number = _insert(db, task)
            db.execute("INSERT INTO asked VALUES (?, ?, ?)", (name, number, size))
            return cls(journal, number, task, name=name, size=size, resources=_begin_resources(db, number, resources))

        return await journal.write(work)

    @property
    def is_open(self) -> bool:
        """Tell whether nothing is decided about it yet."""
        return self.state is GroupState.WORKING

    def missing(self, size: int) -> list[int]:
        """Return the places of members that are still to be made, in a group of `size`."""
        return [member for member in range(size) if member not in self.members]

    async def add(self, member: int, rollout: Rollout, place: Place) -> None:
        """Take in a judged rollout, saved at `place`. Its turns are forgotten."""

        def work(db: sqlite3.Connection) -> None:
            values = (self.number, member, place.offset, place.size, place.crc, rollout.reward.value)
            db.execute("INSERT OR REPLACE INTO members VALUES (?, ?, ?, ?, ?, ?)", values)
            db.execute("DELETE FROM turns WHERE number = ? AND member = ?", (self.number, member))

        await self._journal.write(work)
        self.members[member] = rollout

    def grow(self, size: int) -> None:
        """Have `size` members made, also of a group of the run's own order."""
        self.size = size

    async def restart(self) -> None:
        """Forget its members, which are made again."""
        await self._journal.write(lambda db: _forget_members(db, self.number))
        self.members.clear()
        self.resampled += 1

    async def close(self, state: GroupState, reason: str, evidence: str = "") -> None:
        """Note the group's outcome, and why. evidence: more about it, a path in the run's directory."""
        await self._journal.write(lambda db: settle(db, self.number, state, reason, evidence), flush=True)
        self.state = state

    def enter_outbox(self, db: sqlite3.Connection, rows: int) -> None:
        """Note, in a transaction that stores its rows, how many `rows` wait to be sent."""
        settle(db, self.number, GroupState.OUTBOX, f"{rows} rows wait for the trainer API", rows=rows)


@dataclass(frozen=True, slots=True)
class UnfinishedGroup:
    """A group that an earlier start left. members: the places of its saved, judged rollouts. size: as in `Group`."""

    number: int
    task: str
    members: Mapping[int, Place]
    state: GroupState = GroupState.WORKING
    reason: str = ""
    size: int | None = None


async def unfinished_groups(journal: Journal) -> list[UnfinishedGroup]:
    """Return the unfinished groups of the run's own order, in the order of their draws."""
    query = (
        "SELECT number, task, state, reason, NULL FROM groups WHERE state = 'working' "
        "AND number NOT IN (SELECT number FROM asked) ORDER BY number"
    )
    return await journal.write(lambda db: [_unfinished_group(db, row) for row in db.execute(query).fetchall()])


async def find_requested(journal: Journal, name: str) -> UnfinishedGroup | None:
    """Return the group that was asked for under a name, in any state; None without one."""
    query = "SELECT number, task, state, reason, asked.size FROM asked JOIN groups USING (number) WHERE name = ?"

    def work(db: sqlite3.Connection) -> UnfinishedGroup | None:
        row = db.execute(query, (name,)).fetchone()
        return None if row is None else _unfinished_group(db, row)

    return await journal.write(work)


async def confirm(journal: Journal, run_id: str, names: Collection[str]) -> None:
    """Note that the trainer is done with groups that it took; confirmed ones may be named again. Raises UntakenGroup
    for a name without a taken group, and confirms none then."""

    def work(db: sqlite3.Connection) -> None:
        taken = {name: found for name in names if (found := _find_handed(db, run_id, name)) is not None}
        if unknown := sorted(set(names) - set(taken)):
            raise UntakenGroup(f"no group {unknown[0]!r} was taken; {len(unknown)} such names are to be confirmed")
        for number, state in taken.values():
            if state == GroupState.TAKEN:
                settle(db, number, GroupState.CONFIRMED, _DONE)

    await journal.write(work, flush=True)


async def reopen(journal: Journal, run_id: str, trained: Collection[str] | None = None) -> int:
    """Open groups again that a trainer took before this start and has lost. Returns how many.

    trained: the names of all groups in its saved state, which are confirmed; a confirmed one that is not among
    them was lost with a later state. None if nothing is known but the earlier confirmations."""

    def work(db: sqlite3.Connection) -> int:
        lost = 0
        for number, name, state in list(_handed_groups(db, run_id)):
            done = state == GroupState.CONFIRMED if trained is None else name in trained
            if not done:
                settle(db, number, GroupState.WORKING, "the trainer took it, and has lost it; it is given again")
                lost += 1
            elif state == GroupState.TAKEN:
                settle(db, number, GroupState.CONFIRMED, _DONE)
        return lost

    return await journal.write(work, flush=True)


_DONE = "confirmed by the trainer in this process"


class UntakenGroup(Exception):
    """A group can't be confirmed before a trainer has taken it."""


def _handed_groups(db: sqlite3.Connection, run_id: str) -> Iterator[tuple[int, str, str]]:
    """Yield number, name and state of each group that a trainer in this process has, or had."""
    query = (
        "SELECT number, coalesce(name, ? || '-' || number), state FROM groups LEFT JOIN asked USING (number) "
        "WHERE state IN ('taken', 'confirmed')"
    )
    yield from db.execute(query, (run_id,))


def _find_handed(db: sqlite3.Connection, run_id: str, name: str) -> tuple[int, str] | None:
    """Return number and state of the group that `_handed_groups` names so; None without one. No other group is read."""
    run, _, digits = name.rpartition("-")
    number = int(digits) if run == run_id and digits.isdecimal() and len(digits) < 19 else -1
    query = (
        "SELECT number, state FROM groups WHERE state IN ('taken', 'confirmed') AND number = coalesce((SELECT number "
        "FROM asked WHERE name = :name), (SELECT :number WHERE :number NOT IN (SELECT number FROM asked)))"
    )
    found: tuple[int, str] | None = db.execute(query, {"name": name, "number": number}).fetchone()
    return found


def _unfinished_group(db: sqlite3.Connection, row: tuple[int, str, str, str, int | None]) -> UnfinishedGroup:
    number, task, state, reason, size = row
    query = "SELECT member, place, size, crc FROM members WHERE number = ?"
    members = {member: Place(*place) for member, *place in db.execute(query, (number,))}
    return UnfinishedGroup(number, task, members, GroupState(state), reason, size)


async def lose_task(journal: Journal, number: int) -> None:
    """Note that the run no longer has the task of an unfinished group."""
    reason = "its task is not among the tasks of this run any more"
    await journal.write(lambda db: settle(db, number, GroupState.GONE, reason), flush=True)


async def count_states(journal: Journal) -> Counter[str]:
    """Return how many groups are in each state; their sum is the number of groups ever started."""
    query = "SELECT state, count FROM states WHERE count > 0"
    return await journal.read(lambda db: Counter(dict(db.execute(query))))


async def members_end_offset(journal: Journal) -> int:
    """Return the offset after the last rollout of a group in the saved rollouts."""
    query = "SELECT coalesce(max(place + size), 0) FROM members"
    return await journal.read(lambda db: int(db.execute(query).fetchone()[0]))


async def count_written(journal: Journal, file: str) -> int:
    """Return how many groups were saved to a file of this name."""
    query = "SELECT count(*) FROM groups WHERE state = ? AND evidence = ?"
    return await journal.read(lambda db: int(db.execute(query, (GroupState.SAVED, file)).fetchone()[0]))


def _insert(db: sqlite3.Connection, task: Task) -> int:
    number = next_number(db)
    insert = "INSERT INTO groups (number, task, state, reason) VALUES (?, ?, ?, 'its rollouts are being made')"
    db.execute(insert, (number, task.id, GroupState.WORKING))
    return number


def _begin_resources(db: sqlite3.Connection, number: int, resources: Resources | None) -> Mapping[str, Resource]:
    return {} if resources is None else resources.begin(db, number)


def settle(
    db: sqlite3.Connection, number: int, state: GroupState, reason: str, evidence: str = "", *, rows: int = 0
) -> None:
    """Write the state of a finished group, and why. rows: how many are still to be sent."""
    change = "UPDATE groups SET state = ?, reason = ?, evidence = ?, rows = ? WHERE number = ?"
    db.execute(change, (state, reason, evidence, rows, number))
    _forget_turns(db, number)


def rows_sent(db: sqlite3.Connection, number: int, rows: int) -> None:
    """Note that the trainer API has taken `rows` of a group's rows; with the last one it is delivered."""
    db.execute("UPDATE groups SET rows = rows - ? WHERE number = ?", (rows, number))
    left = db.execute("SELECT rows FROM groups WHERE number = ? AND state = ?", (number, GroupState.OUTBOX)).fetchone()
    if left is not None and left[0] <= 0:
        settle(db, number, GroupState.DELIVERED, "confirmed by the trainer API")


def rows_lost(db: sqlite3.Connection, number: int, rows: int) -> None:
    """Note that `rows` of a group's rows are to be sent again: the trainer API had taken and lost them."""
    (known,) = db.execute("SELECT max(rows, 0) FROM groups WHERE number = ?", (number,)).fetchone()
    settle(db, number, GroupState.OUTBOX, "the trainer API lost it; it is sent again", rows=known + rows)


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """The journal's entry for a group. rewards: of its members, by their place; evidence: a path in the run's
    directory; drawn: what was drawn with its task, "" for nothing."""

    number: int
    task: str
    state: GroupState
    reason: str
    evidence: str
    rewards: Sequence[float]
    drawn: str = ""


def group_outcomes(
    directory: Path, states: Iterable[GroupState] = (), task: str | None = None
) -> Iterator[GroupOutcome]:
    """Read the outcomes of a run's groups, in their order, also while the run goes on.

    states, task: only groups in one of these states, or of this task. Raises RunDirectoryError."""
    chosen = list(states) or list(GroupState)
    marks = ", ".join("?" * len(chosen))
    query = f"SELECT number, task, state, reason, evidence FROM groups WHERE state IN ({marks})"
    values: list[str] = [*chosen]
    if task is not None:
        query, values = f"{query} AND task = ?", [*values, task]
    with Journal.reading(directory) as db:
        drawn = draw_reasons(db)
        for number, name, state, reason, evidence in db.execute(f"{query} ORDER BY number", values):
            rewards = db.execute("SELECT reward FROM members WHERE number = ? ORDER BY member", (number,))
            found = [reward for (reward,) in rewards if reward is not None]
            yield GroupOutcome(number, name, GroupState(state), reason, evidence, found, drawn.get(number, ""))


def draw_reasons(db: sqlite3.Connection) -> dict[int, str]:
    """Return what was drawn with the tasks of groups, by their numbers."""
    return dict(db.execute("SELECT number, reason FROM draws").fetchall())


def _forget_turns(db: sqlite3.Connection, number: int) -> None:
    db.execute("DELETE FROM turns WHERE number = ?", (number,))


def _forget_members(db: sqlite3.Connection, number: int) -> None:
    db.execute("DELETE FROM members WHERE number = ?", (number,))
    _forget_turns(db, number)
