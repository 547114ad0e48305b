"""The journal's file: its tables, and the treatment of a file of an earlier version or a damaged one."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import sqlite3
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from envs.records.disk import LOCK, is_transient
from envs.running.wal import frames_of
from envs.types import GroupState
from sandboxes.owner import boot_time

logger = logging.getLogger(__name__)

VERSION = 5
"""Version of the tables, kept in `PRAGMA user_version`; an empty file has 0."""

CHECKED_WHOLE = 64 * 2**20
"""Bytes of the largest file that is checked whole when it is opened. The check of a larger one would take minutes: its
unfinished groups are checked, and the rest after damage was met in it."""

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
CREATE TABLE IF NOT EXISTS asked (
    name TEXT PRIMARY KEY, number INTEGER NOT NULL, size INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS draws (number INTEGER PRIMARY KEY, reason TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS turns_of ON turns (number, member);
CREATE TABLE IF NOT EXISTS packets (
    id INTEGER PRIMARY KEY AUTOINCREMENT, state TEXT NOT NULL, name TEXT NOT NULL, step INTEGER NOT NULL,
    rows TEXT NOT NULL, body BLOB NOT NULL, crc INTEGER NOT NULL, longest INTEGER NOT NULL DEFAULT 0,
    env_id INTEGER NOT NULL DEFAULT -1, attempt TEXT NOT NULL DEFAULT '', turn INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS resources (
    name TEXT NOT NULL, first INTEGER NOT NULL, at INTEGER NOT NULL, version TEXT NOT NULL, text TEXT NOT NULL,
    source TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS faults (task TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS states (state TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS unfinished ON groups (number) WHERE state = 'working';
CREATE TRIGGER IF NOT EXISTS count_new AFTER INSERT ON groups BEGIN
    INSERT INTO states SELECT new.state, 0 WHERE new.state NOT IN (SELECT state FROM states);
    UPDATE states SET count = count + 1 WHERE state = new.state;
END;
CREATE TRIGGER IF NOT EXISTS count_changed AFTER UPDATE OF state ON groups WHEN new.state != old.state BEGIN
    INSERT INTO states SELECT new.state, 0 WHERE new.state NOT IN (SELECT state FROM states);
    UPDATE states SET count = count + 1 WHERE state = new.state;
    UPDATE states SET count = count - 1 WHERE state = old.state;
END;
"""
_KEYS = {
    "run": "key",
    "groups": "rowid",
    "members": "rowid",
    "turns": "rowid",
    "packets": "rowid",
    "faults": "task",
    "asked": "name",
    "resources": "rowid",
    "draws": "rowid",
}
"""Tables, and the column that orders each for reading. `states` follows from `groups`."""

_OPEN = ("run", "turns", "packets", "faults", "states")
"""Tables with a size that does not grow with the length of a run."""


class RunDirectoryError(ValueError):
    """The run directory can't be used as it is; the message names the remedy."""


class DirectoryInUse(RunDirectoryError):
    """Another process works in the run directory."""


REPAIRED = "repaired"
"""The key, in the table `run`, of a file that has lost rows, so that it may be older than the run."""

OVER = "over"
"""The file in a directory whose last process has ended in good order."""


@contextlib.contextmanager
def lock_directory(directory: Path, option: str = "--env.run_dir") -> Iterator[BinaryIO]:
    """Make a directory, and have it to this process alone while the block runs. Its file says that it is the run's, so
    it stays; another one says afterwards that the run is over. option: names it. Raises RunDirectoryError:
    DirectoryInUse for one in use."""
    directory.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as opened:
        lock = opened.enter_context((directory / LOCK).open("a+b"))
        folder = os.open(directory, os.O_RDONLY)
        opened.callback(os.close, folder)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _lock_folder(folder)  # the file may be deleted by hand
        except BlockingIOError:
            raise DirectoryInUse(f"another process works in {directory}; stop it, or give another {option}") from None
        except OSError as error:
            raise RunDirectoryError(
                f"{directory} is on a file system without locks ({error.strerror}), where a second process could write "
                f"as well; give {option} on another one"
            ) from error
        (directory / OVER).unlink(missing_ok=True)
        try:
            yield lock
        finally:
            with contextlib.suppress(OSError):  # a full disk: then it is over when its files have not changed for long
                (directory / OVER).touch()


def _lock_folder(folder: int) -> None:
    """Lock an open folder, if its file system locks folders: NFS does not. Raises BlockingIOError if it is locked."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        logger.debug("the folder itself is not locked: %s", error)


def open_database(path: Path) -> sqlite3.Connection:
    """Open the file; a missing one is made. A damaged one is moved aside and its readable rows taken over. Raises
    RunDirectoryError for one of another version, and if the file can't be opened now, as when the disk is full: this
    is no damage."""
    try:
        if not path.exists() and _salvage_path(path).exists():  # a process was killed between the two
            _install_salvaged(path)
        return _connect(path)
    except (sqlite3.DatabaseError, OSError) as error:
        if is_transient(error):
            raise RunDirectoryError(
                f"{path} can't be opened now ({error}); make room on its disk, start again"
            ) from error
        if isinstance(error, OSError):
            raise
        logger.error("%s is damaged (%s); taking over what can be read of it", path, error)
        return _salvage(path)


@contextlib.contextmanager
def read_database(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file for reading, also while a run writes it. Raises RunDirectoryError when it can't be read."""
    if not path.is_file():
        raise RunDirectoryError(f"{path.parent} holds no run: there is no {path.name} in it")
    if not path.stat().st_size:
        raise RunDirectoryError(f"{path} is empty; bring it back from a copy, or move it away to do without it")
    # SQLite reads a log by a file beside it, which it can't make here; without a log nobody writes the file either.
    still = not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists()
    address = f"{path.absolute().as_uri()}?{'immutable=1' if still else 'mode=ro'}"
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True)) as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            _check_version(version, path)
            yield db
    except sqlite3.DatabaseError as error:
        away = is_transient(error)
        remedy = "read it as its owner, or copy its folder" if away else "go on with the run, which repairs it"
        raise RunDirectoryError(f"{path} can't be read ({error}); {remedy}") from error


def mark_suspect(path: Path) -> None:
    """Note damage in the file; it is checked whole when it is opened next."""
    _suspect_marker(path).touch()


def _suspect_marker(path: Path) -> Path:
    return path.with_name(f"{path.name}.suspect")


def _check(db: sqlite3.Connection, path: Path) -> None:
    whole = path.stat().st_size <= CHECKED_WHOLE or _suspect_marker(path).exists()
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for part in ["1"] if whole else sorted(tables.intersection(_OPEN)):
        found = db.execute(f"PRAGMA quick_check({part})").fetchone()[0]
        if found != "ok":
            raise sqlite3.DatabaseError(found)
    _suspect_marker(path).unlink(missing_ok=True)


def _connect(path: Path) -> sqlite3.Connection:
    """Raise sqlite3.DatabaseError when the file is damaged."""
    before = frames_of(path, boot_time())
    with contextlib.closing(_connect_with_log(path)) as db:
        _refuse_lost_commits(db, path, before.lost(frames_of(path)))
    # Closing a file drops all locks of this process on it. SQLite's were on the index just read, and without them
    # whoever opens the journal next cuts the index, which kills the process that has it mapped: open it again.
    db = _connect_with_log(path)
    with contextlib.ExitStack() as undo:
        undo.callback(db.close)
        _check(db, path)
        _make_tables(db, path)
        undo.pop_all()
    return db


def _connect_with_log(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    with contextlib.ExitStack() as undo:
        undo.callback(db.close)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()  # which reads the log
        undo.pop_all()
    return db


def _refuse_lost_commits(db: sqlite3.Connection, path: Path, frames: int) -> None:
    """Raise RunDirectoryError if commits were lost, now or at an earlier start: until the user has decided."""
    note = path.with_name(f"{path.name}.rolled-back")
    if frames:
        note.write_text(f"{path.name}-wal was damaged: its last {frames} pages with commits are lost.\n", "utf-8")
        with contextlib.suppress(sqlite3.DatabaseError):  # also of its only page
            _mark_repaired(db)
    if note.exists():
        raise RunDirectoryError(
            f"{note.read_text('utf-8').strip()} What the run did since is forgotten, so that groups may be made and "
            f"sent twice. Give another --env.run_dir, or delete {note} to go on from the older state all the same"
        )


def _check_version(version: int, path: Path) -> None:
    if version > VERSION:
        raise RunDirectoryError(
            f"{path} was written by a later version of this package; use that one, or give another --env.run_dir"
        )
    if version < VERSION:
        raise RunDirectoryError(f"{path} was written before version 0.2.0; give another --env.run_dir")


def _make_tables(db: sqlite3.Connection, path: Path) -> None:
    """Make the tables of an empty file. Raises RunDirectoryError for one of another version."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version or db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'groups'").fetchone()[0]:
        _check_version(version, path)
    else:
        db.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}PRAGMA user_version = {VERSION};COMMIT;")


def _salvage(path: Path) -> sqlite3.Connection:
    """Copy the readable rows of a damaged file into a new one, which takes its place when it is complete. Groups
    without any readable row become corrupt."""
    new, old = _salvage_path(path), path.with_name(f"{path.stem}.damaged-{uuid.uuid4().hex[:6]}{path.suffix}")
    for name in (new.name, f"{new.name}-wal", f"{new.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)
    with (
        contextlib.closing(_connect(new)) as db,
        contextlib.closing(sqlite3.connect(path, isolation_level=None)) as source,
    ):
        copied, lost = _copy_readable_rows(db, source)
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(old.with_name(old.name + suffix))
    _install_salvaged(path)
    logger.error("%s: %d rows taken over, %d groups lost; the old file is %s", path, copied, lost, old)
    return _connect(path)


def _mark_repaired(db: sqlite3.Connection) -> None:
    db.execute("INSERT OR REPLACE INTO run VALUES (?, '')", (REPAIRED,))


def _salvage_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.salvaged")


def _install_salvaged(path: Path) -> None:
    """Put a complete copy in the place of the damaged file, which is moved aside."""
    for name in (f"{path.name}-wal", f"{path.name}-shm", _suspect_marker(path).name):
        path.with_name(name).unlink(missing_ok=True)
    _salvage_path(path).rename(path)


def _copy_readable_rows(db: sqlite3.Connection, source: sqlite3.Connection) -> tuple[int, int]:
    """Copy the readable rows of `source`. Returns the rows copied and the groups lost."""
    copied = 0
    with db:
        db.execute("BEGIN IMMEDIATE")
        for table in _KEYS:
            columns = {name for _, name, *_ in db.execute(f"PRAGMA table_info({table})")}
            for row in _readable_rows(source, table):
                if set(row) <= columns:  # the names come from the damaged file
                    names, marks = ", ".join(row), ", ".join("?" * len(row))
                    insert = f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})"
                    copied += db.execute(insert, list(row.values())).rowcount
        lost = _reconcile(db)
        _mark_repaired(db)
        if not db.execute("SELECT 1 FROM groups LIMIT 1").fetchone():
            logger.error("nothing could be taken over: a new run begins, whose groups are numbered from 0")
            db.execute("INSERT OR REPLACE INTO run VALUES ('id', ?)", (uuid.uuid4().hex[:12],))
    return copied, lost


def _readable_rows(db: sqlite3.Connection, table: str) -> Iterator[dict[str, Any]]:
    """Read the rows of a damaged table up to the damage, from both ends."""
    for order in ("ASC", "DESC"):
        try:
            cursor = db.execute(f"SELECT * FROM {table} ORDER BY {_KEYS[table]} {order}")
            names = [column[0] for column in cursor.description]
            yield from (dict(zip(names, row, strict=True)) for row in cursor)
            return
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            logger.warning("table %s of the damaged file: %s", table, error)


def _reconcile(db: sqlite3.Connection) -> int:
    """Make groups and packets agree again. Returns the number of groups with nothing left."""
    held: Counter[int] = Counter()
    for packet, state, rows in db.execute("SELECT id, state, rows FROM packets").fetchall():
        try:
            counts = {int(number): int(count) for number, count in json.loads(rows).items()}
        except (ValueError, TypeError, AttributeError):
            logger.error("packet %d is lost: its groups can't be read", packet)
            db.execute("DELETE FROM packets WHERE id = ?", (packet,))
            continue
        if state not in ("queued", "batched"):
            held.update(counts)
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
