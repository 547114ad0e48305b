"""Read a run's journal for the page: groups, their members, and the outbox."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from envs.delivery.estimators import USUAL, Estimator
from envs.running.group import draw_reasons
from envs.running.journal import FILE_NAME, Journal
from envs.running.resources import Version, versions

PAGE = 40
"""Groups on one page."""


@dataclass(frozen=True, slots=True)
class Member:
    """A group's counting rollout. place: of its line in the saved rollouts."""

    member: int
    place: int
    size: int
    reward: float | None


@dataclass(frozen=True, slots=True)
class SavedGroup:
    """A group. making: unfinished members, with their numbers of turns. drawn: what was drawn with its task; "" for
    nothing. resources: the versions of the run's resources that it has, by name."""

    number: int
    task: str
    state: str
    reason: str
    evidence: str
    rows: int
    members: Sequence[Member]
    making: Mapping[int, int]
    estimator: Estimator = USUAL
    drawn: str = ""
    resources: Mapping[str, str] = field(default_factory=dict)

    @property
    def rewards(self) -> list[float]:
        """Return the members' rewards."""
        return [member.reward for member in self.members if member.reward is not None]


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a run. groups: by state. outbox: packets by state, with their bytes."""

    run: str
    groups: Mapping[str, int]
    members: int
    outbox: Mapping[str, tuple[int, int]]
    group_size: int | None


def has_journal(directory: Path) -> bool:
    """Tell whether a directory has a journal: evaluations have none."""
    return (directory / FILE_NAME).is_file()


def standing(directory: Path) -> Standing | None:
    """Return the state of a run; None without a journal. Raises RunDirectoryError."""
    if not has_journal(directory):
        return None
    with Journal.reading(directory) as db:
        groups = dict(db.execute("SELECT state, count FROM states WHERE count > 0 ORDER BY count DESC"))
        outbox = {
            state: (count, size)
            for state, count, size in db.execute("SELECT state, count(*), sum(length(body)) FROM packets GROUP BY 1")
        }
        run = dict(db.execute("SELECT key, value FROM run WHERE key IN ('id', 'is:group_size')"))
        (members,) = db.execute("SELECT count(*) FROM members").fetchone()
    size = run.get("is:group_size")
    return Standing(run.get("id", ""), groups, members, outbox, int(size) if size and size.isdecimal() else None)


def group(directory: Path, number: int) -> SavedGroup | None:
    """Return a group; None for an unknown one. Raises RunDirectoryError."""
    if not has_journal(directory):
        return None
    with Journal.reading(directory) as db:
        return next(_groups(db, "WHERE number = ?", (number,)), None)


def groups(
    directory: Path, *, state: str = "", task: str = "", resource: str = "", page: int = 1, size: int = PAGE
) -> list[SavedGroup]:
    """Return a page of groups, newest first. resource: as name=version. size: of a page, -1 for all. Raises
    RunDirectoryError."""
    if not has_journal(directory):
        return []
    conditions: dict[str, object] = {"state = ?": state, "task = ?": task}
    with Journal.reading(directory) as db:
        if resource:
            name, _, version = resource.partition("=")
            first, last = _group_range([one for one in versions(db) if one.name == name], version)
            conditions |= {"number >= ?": first, "number < ?": last}
        where = " AND ".join(condition for condition, value in conditions.items() if value != "")
        values = [value for value in conditions.values() if value != ""]
        tail = f"{'WHERE ' + where if where else ''} ORDER BY number DESC LIMIT ? OFFSET ?"
        return list(_groups(db, tail, (*values, size, max(0, size) * (page - 1))))


def resources(directory: Path) -> list[Version]:
    """Return the versions of the run's resources, in their order. Raises RunDirectoryError."""
    if not has_journal(directory):
        return []
    with Journal.reading(directory) as db:
        return versions(db)


def _group_range(known: Sequence[Version], version: str) -> tuple[int, int]:
    """Return the numbers of the first group with a version, and of the first after those."""
    for one, after in zip(known, [*(one.first for one in known[1:]), 2**62], strict=True):
        if one.version == version:
            return one.first, after
    return 0, 0


def _groups(db: sqlite3.Connection, tail: str, values: Sequence[object]) -> Iterator[SavedGroup]:
    members = "SELECT member, place, size, reward FROM members WHERE number = ? ORDER BY member"
    turns = "SELECT member, count(*) FROM turns WHERE number = ? GROUP BY member"
    drawn = draw_reasons(db)
    estimator = Estimator.from_journal(dict(db.execute("SELECT key, value FROM run")))
    known = versions(db)
    query = f"SELECT number, task, state, reason, evidence, rows FROM groups {tail}"
    for number, task, state, reason, evidence, rows in db.execute(query, values):
        found = [Member(*row) for row in db.execute(members, (number,))]
        made = dict(db.execute(turns, (number,)).fetchall())
        why, had = drawn.get(number, ""), {one.name: one.version for one in known if one.first <= number}
        yield SavedGroup(number, task, state, reason, evidence, rows, found, made, estimator, why, had)
