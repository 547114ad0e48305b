"""The journal's file: its tables, and what is done with one of an earlier version or one that is damaged."""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envs.types import GroupState

logger = logging.getLogger(__name__)

VERSION = 2
"""Of the tables, kept in `PRAGMA user_version`; version 0.1 of the package wrote 0."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS run (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS groups (
    number INTEGER PRIMARY KEY, task TEXT NOT NULL, state TEXT NOT NULL, rows INTEGER NOT NULL DEFAULT 0,
    reason TEXT NOT NULL DEFAULT '', evidence TEXT NOT NULL DEFAULT '');
CREATE TABLE IF NOT EXISTS members (
    number INTEGER NOT NULL, member INTEGER NOT NULL, place INTEGER NOT NULL, size INTEGER NOT NULL,
    crc INTEGER NOT NULL, reward REAL, PRIMARY KEY (number, member));
CREATE TABLE IF NOT EXISTS turns (
    number INTEGER NOT NULL, member INTEGER NOT NULL, body BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS turns_of ON turns (number, member);
CREATE TABLE IF NOT EXISTS packets (
    id INTEGER PRIMARY KEY AUTOINCREMENT, state TEXT NOT NULL, name TEXT NOT NULL, step INTEGER NOT NULL,
    rows TEXT NOT NULL, body BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS faults (task TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
"""
_KEYS = {
    "run": "key",
    "groups": "rowid",
    "members": "rowid",
    "turns": "rowid",
    "packets": "rowid",
    "faults": "task",
}
"""Tables, and by what each is read in order."""

_FROM_0_1 = """
ALTER TABLE groups ADD COLUMN reason TEXT NOT NULL DEFAULT '';
ALTER TABLE groups ADD COLUMN evidence TEXT NOT NULL DEFAULT '';
ALTER TABLE members RENAME COLUMN slot TO member;
ALTER TABLE members ADD COLUMN reward REAL;
ALTER TABLE turns RENAME COLUMN slot TO member;
UPDATE groups SET reason = 'noted by version 0.1, which gave no reason';
"""
_RENAMED = """
UPDATE groups SET state = 'outbox' WHERE state = 'spooled';
UPDATE groups SET state = 'equal' WHERE state = 'flat';
UPDATE groups SET state = 'quarantined' WHERE state = 'failed';
"""
"""States that version 0.1 called otherwise."""


class RunDirectoryError(ValueError):
    """The run directory can't be used as it is; the message names the remedy."""


def open_database(path: Path) -> sqlite3.Connection:
    """Open the file, made where there is none. One of version 0.1 is brought up to date; one that is damaged is
    moved aside and what can be read of it taken over. Raises RunDirectoryError for one of a later version."""
    try:
        return _connect(path)
    except sqlite3.DatabaseError as error:
        logger.error("%s is damaged (%s); taking over what can be read of it", path, error)
        return _salvage(path)


@contextlib.contextmanager
def read_database(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file for reading, also while a run writes it. Raises RunDirectoryError when it can't be read."""
    if not path.is_file():
        raise RunDirectoryError(f"{path.parent} holds no run: there is no {path.name} in it")
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version != VERSION:
            raise RunDirectoryError(
                f"{path} was written by another version of this package; go on with the run once, which converts it"
            )
        yield db
    except sqlite3.DatabaseError as error:
        raise RunDirectoryError(f"{path} can't be read ({error}); go on with the run, which repairs it") from error
    finally:
        db.close()


def _connect(path: Path) -> sqlite3.Connection:
    """Raise sqlite3.DatabaseError when the file is damaged."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise sqlite3.DatabaseError(found)
        _bring_up_to_date(db, path)
    except BaseException:
        db.close()
        raise
    return db


def _bring_up_to_date(db: sqlite3.Connection, path: Path) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise RunDirectoryError(
            f"{path} was written by a later version of this package; use that one, or give another --env.run_dir"
        )
    old = version == 0 and db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'groups'").fetchone()[0]
    if old:
        logger.info("%s is of version 0.1 and is brought up to date", path)
    change = f"{_FROM_0_1 + _RENAMED if old else ''}{_SCHEMA}PRAGMA user_version = {VERSION};"
    db.executescript(f"BEGIN IMMEDIATE;{change}COMMIT;")


def _salvage(path: Path) -> sqlite3.Connection:
    """Move a damaged file aside and copy its readable rows into a new one. Groups of which nothing can be told any
    more become corrupt."""
    old = path.with_name(f"{path.stem}.damaged-{uuid.uuid4().hex[:6]}{path.suffix}")
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(old.with_name(old.name + suffix))
    db = _connect(path)
    source = sqlite3.connect(old, isolation_level=None)
    copied = 0
    with db:
        for table in _KEYS:
            columns = {name for _, name, *_ in db.execute(f"PRAGMA table_info({table})")}
            for row in _readable(source, table):
                # The names come from the damaged file, which may be of version 0.1.
                values = {"member" if name == "slot" else name: value for name, value in row.items()}
                if set(values) <= columns:
                    names, marks = ", ".join(values), ", ".join("?" * len(values))
                    insert = f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})"
                    copied += db.execute(insert, list(values.values())).rowcount
        for change in _RENAMED.strip().splitlines():
            db.execute(change)
        lost = _account(db)
    source.close()
    logger.error("%s: %d rows taken over, %d groups lost; the old file is %s", path, copied, lost, old)
    return db


def _readable(db: sqlite3.Connection, table: str) -> Iterator[dict[str, Any]]:
    """Read the rows of a damaged table up to the damage, from both ends."""
    for order in ("ASC", "DESC"):
        try:
            cursor = db.execute(f"SELECT * FROM {table} ORDER BY {_KEYS[table]} {order}")
            names = [column[0] for column in cursor.description]
            yield from (dict(zip(names, row, strict=True)) for row in cursor)
            return
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            logger.warning("table %s of the damaged file: %s", table, error)


def _account(db: sqlite3.Connection) -> int:
    """Make groups and packets agree again. Returns the number of groups of which nothing is left."""
    held: Counter[int] = Counter()
    for (rows,) in db.execute("SELECT rows FROM packets WHERE state != 'queued'"):
        held.update({int(number): count for number, count in json.loads(rows).items()})
    known = dict(db.execute("SELECT number, state FROM groups"))
    # A group is what its packets say; without them one of the outbox will never be delivered.
    states = {n: GroupState.CORRUPT for n in range(max([*known, *held], default=-1)) if n not in known}
    states |= {n: GroupState.CORRUPT for n, state in known.items() if state == GroupState.OUTBOX}
    states |= dict.fromkeys(held, GroupState.OUTBOX)
    for number, state in states.items():
        db.execute("INSERT OR IGNORE INTO groups (number, task, state) VALUES (?, '', ?)", (number, state))
        reason = "taken over from a damaged file" if state is GroupState.OUTBOX else "lost with a damaged file"
        change = "UPDATE groups SET state = ?, rows = ?, reason = ? WHERE number = ?"
        db.execute(change, (state, held[number], reason, number))
    return sum(state is GroupState.CORRUPT for state in states.values())
