"""Give the resources of a run new versions while it goes on, by a call or by a file.

Every version is in the journal with the first group that has it. A group takes the newest versions in the transaction
that begins it, and keeps them: all its members share them, also after a restart. A wish comes from a call
(`resources["system_prompt"] = text`), or from a file `resources/NAME.txt` in the run's directory, for any program to
write. The later one counts. Files are looked at whenever a group begins.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import count
from pathlib import Path

from envs.records.disk import replace_file
from envs.resources import Resource
from envs.running.journal import Journal
from sandboxes.naming import did_you_mean

logger = logging.getLogger(__name__)

FOLDER = "resources"
"""Holds the watched files, in the run's directory."""
_EMPTY_NS = 5 * 10**9
"""How long a file is empty before that is meant: editors empty a file before they write it."""


class NoSuchResource(ValueError):
    """A run has no resource of this name; the message names the others."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a resource. first: the number of the first group that has it. at: when it was wished, in
    nanoseconds of Unix time. source: start, call or file."""

    name: str
    first: int
    at: int
    version: str
    text: str
    source: str


class Resources(Mapping[str, Resource]):
    """The newest versions of a run's resources, by name. An assignment is for all groups begun after it.

    start: at the start of the run; None for one without a text then. A name outside of it is refused.
    """

    def __init__(self, folder: Path, start: Mapping[str, Resource | None]) -> None:
        self.folder = folder
        self._start = dict(start)
        self._newest = {name: resource for name, resource in start.items() if resource is not None}
        self._wishes: dict[str, tuple[int, str, str]] = {}
        """The last call for each name: its time, the text, the version's name."""
        self._refused: dict[str, int] = {}
        """The times of unusable files, by the name."""
        self._last = 0

    @classmethod
    async def open(cls, journal: Journal, start: Mapping[str, Resource | None]) -> Resources:
        """Open the resources of a run, or those of an earlier start. One that starts with another text than before
        has a new version."""
        resources = cls(journal.path.parent / FOLDER, start)
        await journal.write(resources._open)
        return resources

    def __getitem__(self, name: str) -> Resource:
        return self._newest[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._newest)

    def __len__(self) -> int:
        return len(self._newest)

    def __setitem__(self, name: str, value: str | Resource) -> None:
        """Wish a new version. Raises NoSuchResource, and ValueError for a text that can't take the present one's
        place."""
        text, version = (value.text, value.version) if isinstance(value, Resource) else (value, "")
        self._newest[name] = self._make_resource(name, text, version)
        self._last = max(time.time_ns(), self._last + 1)
        self._wishes[name] = self._last, text, version

    def begin(self, db: sqlite3.Connection, number: int) -> dict[str, Resource]:
        """Return the newest versions for a group, in the transaction that begins it; what was wished is among them."""
        stored = newest(db)
        wishes = [(at, name, text, version, "call") for name, (at, text, version) in list(self._wishes.items())]
        for at, name, text, version, source in sorted([*wishes, *self._new_files(stored)]):
            before = stored.get(name)
            if before is None or (at > before.at and text != before.text):
                stored[name] = _store(db, Version(name, number, at, version, text, source))
        self._last = max([self._last, *(one.at for one in stored.values())])
        found = self._make_resources(stored.values())
        # A call of this moment is not among them yet.
        late = {name for name, (at, *_) in list(self._wishes.items()) if name in stored and at > stored[name].at}
        self._newest |= {name: resource for name, resource in found.items() if name not in late}
        return found

    async def now(self, journal: Journal) -> Mapping[str, Resource]:
        """Return the newest versions for rollouts of no group, such as an evaluation's."""
        return await journal.write(lambda db: self.begin(db, next_number(db)))

    def at(self, db: sqlite3.Connection, number: int) -> dict[str, Resource]:
        """Return the versions of a group that has begun."""
        return self._make_resources(newest(db, number).values())

    def _open(self, db: sqlite3.Connection) -> None:
        started = {one.name: one.text for one in versions(db) if one.source == "start"}
        known = newest(db)
        number = next_number(db)
        for name, resource in self._start.items():
            if resource is not None and started.get(name) != resource.text:
                # What stands in a file already counts more than what a run begins with.
                at = time.time_ns() if name in known else 0
                known[name] = _store(db, Version(name, number, at, resource.version, resource.text, "start"))
        self._last = max((one.at for one in known.values()), default=0)
        self._newest = self._make_resources(known.values())

    def _new_files(self, stored: Mapping[str, Version]) -> Iterator[tuple[int, str, str, str, str]]:
        """Yield what stands in files that are newer than the stored versions."""
        for path in sorted(self.folder.glob("*.txt")):
            name, at = path.stem, 0
            try:
                at = path.stat().st_ctime_ns
                if at > max(self._refused.get(name, 0), stored[name].at if name in stored else 0):
                    text = path.read_text(encoding="utf-8")
                    if not text and time.time_ns() - at < _EMPTY_NS:
                        continue
                    self._make_resource(name, text, "")
                    yield at, name, text, "", "file"
            except (OSError, ValueError) as error:
                self._refused[name] = at
                logger.error("%s is not taken: %s", path, error)

    def _make_resource(self, name: str, text: str, version: str) -> Resource:
        if name not in self._start:
            known = ", ".join(self._start) or "none"
            raise NoSuchResource(
                f"there is no resource {name!r}{did_you_mean(name, self._start)}; this run has {known}"
            )
        return (self._start[name] or Resource("")).again(text, version)

    def _make_resources(self, found: Iterable[Version]) -> dict[str, Resource]:
        """Return versions as resources, without those that the environment no longer has."""
        return {
            one.name: self._make_resource(one.name, one.text, one.version) for one in found if one.name in self._start
        }


def versions(db: sqlite3.Connection, where: str = "", values: Sequence[object] = ()) -> list[Version]:
    """Return the versions of a run's resources, in their order. where: a condition in SQL."""
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'resources'").fetchone() is None:
        return []  # an earlier version of the package made the run
    query = f"SELECT name, first, at, version, text, source FROM resources {where} ORDER BY rowid"
    return [Version(*row) for row in db.execute(query, values)]


def newest(db: sqlite3.Connection, number: int = 2**62) -> dict[str, Version]:
    """Return the versions that a group has, by name; without a number, those of the next one."""
    last = "WHERE rowid IN (SELECT max(rowid) FROM resources WHERE first <= ? GROUP BY name)"
    return {one.name: one for one in versions(db, last, (number,))}


def request_version(folder: Path, name: str, text: str) -> None:
    """Wish a new version of a running run's resource, from any process. folder: `resources` in its directory."""
    folder.mkdir(exist_ok=True)
    replace_file(folder / f"{name}.txt", text.encode())


def next_number(db: sqlite3.Connection) -> int:
    """Return the number of the group that begins next."""
    return int(db.execute("SELECT coalesce(max(number), -1) + 1 FROM groups").fetchone()[0])


def _store(db: sqlite3.Connection, one: Version) -> Version:
    """Write a version. Without a name of its own, or with another version's, it is named by a number."""
    taken = {name for (name,) in db.execute("SELECT version FROM resources WHERE name = ?", (one.name,))}
    if not one.version or one.version in taken:
        numbers = (str(number) for number in count(len(taken) + 1))
        one = replace(one, version=next(number for number in numbers if number not in taken))
    db.execute("INSERT INTO resources VALUES (?, ?, ?, ?, ?, ?)", astuple(one))
    logger.info("resource %s: version %s from group %d on (%s)", one.name, one.version, one.first, one.source)
    return one
