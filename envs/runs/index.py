"""Index a run's saved rollouts, beside them: a SQLite file with a line for each, sums by step, and their words.

The viewer builds it, a stretch at a time, newest rollouts first, and follows the growing files. The unindexed part lies
before `low`, in bytes counted over all parts of `rollouts.jsonl`, or after `high`. The file repeats the rollouts only:
you may delete it at any time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import orjson

from envs.records.atif import parts
from envs.runs.facts import Facts, facts_of
from envs.runs.stretches import STRETCH, Parts, before, behind, end_of, last_line_end, read_line

logger = logging.getLogger(__name__)

VERSION = 3
FILE_NAME = "rollouts.index"
_HEAD = 256
"""Bytes of a line for its recognition."""
PATIENCE_S = 30.0
"""Longest wait for another process that indexes, in seconds."""
SEPARATOR = "\x1f"
"""Around each label of a rollout."""

_TEXTS = ("instruction", "conversation", "output")
_FIGURES = tuple(field.name for field in fields(Facts) if field.name not in ("labels", "explanation", *_TEXTS))
_SUMS = (
    *("rollouts", "solved", "cheated", "dated", "stale", "reward", "tokens", "sampled", "surprise", "turns", "seconds"),
    *("open_s", "engine_s", "tools_s", "verifier_s", "tool_errors", "malformed"),
)
"""Sums over the rollouts of a step."""
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS covered (
    low INTEGER NOT NULL, high INTEGER NOT NULL, last INTEGER, head BLOB NOT NULL DEFAULT x'',
    damaged INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS rollouts (
    place INTEGER PRIMARY KEY, size INTEGER NOT NULL, labels TEXT NOT NULL, {", ".join(_FIGURES)});
CREATE INDEX IF NOT EXISTS rollouts_id ON rollouts (id);
CREATE INDEX IF NOT EXISTS rollouts_task ON rollouts (task);
CREATE INDEX IF NOT EXISTS rollouts_reward ON rollouts (reward);
CREATE INDEX IF NOT EXISTS rollouts_step ON rollouts (step);
CREATE INDEX IF NOT EXISTS rollouts_group ON rollouts (grp, member);
CREATE TABLE IF NOT EXISTS said (place INTEGER PRIMARY KEY, explanation TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS labels (
    kind TEXT NOT NULL, name TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (kind, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tasks (
    task TEXT NOT NULL, evaluating INTEGER NOT NULL, rollouts INTEGER NOT NULL, solved INTEGER NOT NULL,
    reward REAL NOT NULL, PRIMARY KEY (task, evaluating)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS steps (
    step INTEGER NOT NULL, evaluating INTEGER NOT NULL, {", ".join(_SUMS)},
    PRIMARY KEY (step, evaluating)) WITHOUT ROWID;
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5 (
    {", ".join(_TEXTS)}, content = '', tokenize = "unicode61 tokenchars '_'");
PRAGMA user_version = {VERSION};
COMMIT;
"""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The indexed part of the saved rollouts, in bytes. damaged: unreadable lines."""

    indexed: int
    total: int
    damaged: int

    @property
    def share(self) -> float:
        """Return the indexed share, 0 to 1."""
        return 1.0 if self.total == 0 else min(1.0, self.indexed / self.total)


class Index:
    """The index of the rollouts in `directory`, or in a temporary directory if that can't be written."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / FILE_NAME
        self._elsewhere: tempfile.TemporaryDirectory[str] | None = None
        try:
            if not all(os.access(one, os.W_OK) for one in (directory, self.path) if one.exists()):
                raise sqlite3.OperationalError(f"{self.path} is another user's")  # which SQLite opens, to read it
            self._make()
        except sqlite3.OperationalError:
            self._elsewhere = tempfile.TemporaryDirectory(prefix="atropos-page-")
            self.path = Path(self._elsewhere.name) / FILE_NAME
            self._make()

    def close(self) -> None:
        """Delete the index if it lies in a temporary directory."""
        if self._elsewhere is not None:
            self._elsewhere.cleanup()

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Open the index for one look."""
        with contextlib.closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            db.row_factory = sqlite3.Row
            yield db

    def coverage(self) -> Coverage:
        """Tell how much is indexed."""
        sizes = [(start, path.stat().st_size) for start, path in parts(self.directory)]
        with self.reading() as db:
            low, high, damaged = db.execute("SELECT low, high, damaged FROM covered").fetchone() or (0, 0, 0)
        indexed = sum(max(0, min(high, start + size) - max(low, start)) for start, size in sizes)
        return Coverage(indexed, sum(size for _, size in sizes), damaged)

    def advance(self, size: int = STRETCH) -> bool:
        """Index one more stretch: the new lines, or else the newest unindexed ones. Returns whether there was any.

        size: bytes of it, if no line is longer. Raises sqlite3.OperationalError while another process indexes, and
        OSError."""
        known = parts(self.directory)
        if not known:
            return False
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None, timeout=1.0)) as db:
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("BEGIN IMMEDIATE")
            low, high = self._indexed_range(db, known)
            found = behind(known, low, high, size) or before(known, low, high, size)
            if found is not None:
                damaged = _insert_lines(db, found.lines)
                change = "UPDATE covered SET low = ?, high = ?, damaged = damaged + ?"
                db.execute(change, (found.low, found.high, damaged))
                if found.high > high or low == high:
                    last, line = found.lines[-1]
                    db.execute("UPDATE covered SET last = ?, head = ?", (last, line[:_HEAD]))
            db.execute("COMMIT")
        return found is not None

    def catch_up(self) -> None:
        """Index all that is there, also beside another process that indexes. Raises sqlite3.OperationalError if that
        one does not let go, and OSError."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                if not self.advance():
                    return
                until = time.monotonic() + PATIENCE_S
            except sqlite3.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def _make(self) -> None:
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None, timeout=5.0)) as db:
            try:
                (version,) = db.execute("PRAGMA user_version").fetchone()
                if version == VERSION:
                    return
                damaged = version != 0
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError:
                damaged = True
        if damaged:
            logger.warning("%s is damaged or of another version; it is made again", self.path)
            for suffix in ("", "-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None, timeout=5.0)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(_SCHEMA)

    def _indexed_range(self, db: sqlite3.Connection, known: Parts) -> tuple[int, int]:
        """Return the indexed part. It begins again if the files are others than the indexed ones."""
        found = db.execute("SELECT low, high, last, head FROM covered").fetchone()
        if found is not None:
            low, high, last, head = found
            if high <= end_of(known) and _matches_file(known, last, head):
                return int(low), int(high)
            logger.warning("%s holds other rollouts than those that were indexed; indexing again", self.directory)
        for table in ("covered", "rollouts", "said", "labels", "tasks", "steps"):
            db.execute(f"DELETE FROM {table}")
        db.execute("INSERT INTO words (words) VALUES ('delete-all')")
        place = last_line_end(known)
        db.execute("INSERT INTO covered (low, high) VALUES (?, ?)", (place, place))
        return place, place


def _matches_file(known: Parts, last: int | None, head: bytes) -> bool:
    """Tell whether the last indexed line still stands in its place, by its beginning with the rollout's id. A missing
    part is believed."""
    line = None if last is None else read_line(known, last, len(head))
    return line is None or line == head


def _insert_lines(db: sqlite3.Connection, lines: Sequence[tuple[int, bytes]]) -> int:
    """Put lines into the index. Returns how many could not be read."""
    damaged = 0
    for place, line in lines:
        if not line.strip():
            continue
        try:
            facts = facts_of(orjson.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            damaged += 1
            continue
        _insert(db, place, len(line), facts)
    return damaged


def _insert(db: sqlite3.Connection, place: int, size: int, facts: Facts) -> None:
    labels = SEPARATOR.join(["", *(f"{kind}:{name}" for kind, name in facts.labels), ""])
    figures = [getattr(facts, name) for name in _FIGURES]
    db.execute(f"INSERT INTO rollouts VALUES ({', '.join('?' * (3 + len(figures)))})", (place, size, labels, *figures))
    db.execute("INSERT INTO said VALUES (?, ?)", (place, facts.explanation))
    count = "INSERT INTO labels VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET count = count + 1"
    db.executemany(count, [*facts.labels, ("stop", facts.stop), ("band", facts.band)])
    db.execute(
        "INSERT INTO tasks VALUES (?, ?, 1, ?, ?) ON CONFLICT DO UPDATE SET rollouts = rollouts + 1, "
        "solved = solved + excluded.solved, reward = reward + excluded.reward",
        (facts.task, facts.evaluating, facts.solved, facts.reward),
    )
    sums = ", ".join(f"{name} = {name} + excluded.{name}" for name in _SUMS)
    db.execute(
        f"INSERT INTO steps VALUES (?, ?, {', '.join('?' * len(_SUMS))}) ON CONFLICT DO UPDATE SET {sums}",
        (facts.step, facts.evaluating, *_summed(facts)),
    )
    texts = (facts.instruction, facts.conversation, facts.output)
    db.execute(f"INSERT INTO words (rowid, {', '.join(_TEXTS)}) VALUES (?, ?, ?, ?)", (place, *texts))


def _summed(facts: Facts) -> list[float]:
    """Return a rollout's addition to the sums of its step."""
    own = {
        "rollouts": 1,
        "cheated": any(kind == "sign" for kind, _ in facts.labels),
        "dated": facts.policy is not None,
        "stale": 0 if facts.policy is None else facts.step - facts.policy,
    }
    return [own[name] if name in own else getattr(facts, name) for name in _SUMS]
