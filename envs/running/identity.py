"""Identify the run in a directory: its id, and the options with which it can be continued."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from envs.running.database import REPAIRED, RunDirectoryError
from envs.types import GroupState


@dataclass(frozen=True, slots=True)
class DirectoryState:
    """A directory's state of a run. earlier: whether an earlier start was there. changed: the conditions of this
    start that differ from the one before, a sentence each."""

    earlier: bool
    changed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether an earlier start was there."""
        return self.earlier


def is_known(
    db: sqlite3.Connection,
    identity: Mapping[str, Any],
    directory: Path,
    conditions: Mapping[str, Any],
    allowed: Collection[str],
) -> DirectoryState:
    """Return a database's state of an earlier part of this run, and keep this run's identity and conditions in it.
    Under other conditions its unfinished groups begin again: what was sampled for them is another policy's.

    Raises RunDirectoryError when it holds another run: one that differs in a value of `identity`, or in one of
    `conditions` without its name among the `allowed` ones."""
    known = {key: json.loads(value) for key, value in db.execute("SELECT key, value FROM run WHERE key LIKE 'is:%'")}
    values = {**conditions, **identity}
    differs = {
        name: f"{name} is {value!r}, it was {known['is:' + name]!r}"
        for name, value in values.items()
        if "is:" + name in known and json.dumps(known["is:" + name]) != json.dumps(value)
    }
    refused = [name for name in differs if name in identity or name not in allowed]
    if refused:
        changes = "; ".join(differs[name] for name in refused)
        remedy = "Set them back, or give another --env.run_dir"
        if free := [name for name in refused if name not in identity]:
            remedy += f"; --env.allow_change {','.join(free)} continues in spite of that"
        raise RunDirectoryError(
            f"{directory} holds a run that can't be continued with these options: {changes}. {remedy}"
        )
    if differs:
        unfinished = "SELECT number FROM groups WHERE state = ?"
        db.execute(f"DELETE FROM members WHERE number IN ({unfinished})", (GroupState.WORKING,))
        db.execute("DELETE FROM turns")
    for name, value in values.items():
        db.execute("INSERT OR REPLACE INTO run VALUES (?, ?)", ("is:" + name, json.dumps(value)))
    return DirectoryState(bool(known), tuple(differs.values()))


def name_run(db: sqlite3.Connection, lock: BinaryIO, path: Path) -> None:
    """Give a new run its id, also noted in the file of the lock. path: the database's file. Raises
    RunDirectoryError when the lock's file names another run, and for an older database than the run's last one."""
    lock.seek(0)
    named, counted = lock.read(100).decode("ascii", "replace").strip(), _counted_groups(path.parent)
    values = dict(db.execute("SELECT key, value FROM run WHERE key IN ('id', ?)", (REPAIRED,)))
    found = values.get("id")
    nothing = found is None and not db.execute("SELECT 1 FROM groups LIMIT 1").fetchone()
    if nothing and (named or counted):
        raise RunDirectoryError(
            f"{path} is empty, although {path.parent} holds what a run has made. Bring the file back "
            "from a copy to go on with that run; for a new one give another --env.run_dir"
        )
    if found and named not in ("", found) and REPAIRED not in values:
        raise RunDirectoryError(
            f"{path} is of run {found}, and {path.parent} is of run {named}: bring that one's back, or give another "
            "--env.run_dir"
        )
    done, ever = _finished(dict(db.execute("SELECT state, count FROM states"))), _finished(counted)
    if done < ever and REPAIRED not in values:
        raise RunDirectoryError(
            f"{path} knows of {done} finished groups, and metrics.json beside it counts {ever}: it is an older copy. "
            "Groups since then would be made, and rows sent, a second time. Bring the newest back, or give another "
            "--env.run_dir; delete metrics.json to go on from the older state all the same"
        )
    name = found or named or uuid.uuid4().hex[:12]
    db.execute("INSERT OR IGNORE INTO run VALUES ('id', ?)", (name,))
    if named != name:
        lock.truncate(0)
        lock.write(name.encode())
        lock.flush()


def _finished(states: Mapping[str, int]) -> int:
    """Return the number of groups by states, without those that a later start may open again."""
    again = (GroupState.WORKING, GroupState.TAKEN, GroupState.CONFIRMED)
    return sum(count for state, count in states.items() if state not in again)


def _counted_groups(directory: Path) -> dict[str, int]:
    """Return the numbers of a run's groups by state, as its metrics have them; nothing without readable ones."""
    try:
        states = orjson.loads((directory / "metrics.json").read_bytes())["states"]
        return {str(state): int(count) for state, count in states.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
