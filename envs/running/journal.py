"""The state of a run, on disk: one SQLite file, from which a later start continues.

Each task drawn is a group, in one row (see `envs.running.group`). While it is unfinished, `members` has the places of
its judged rollouts in `rollouts.jsonl`, and `turns` holds every turn of the others. When it is complete, one
transaction puts its rows into *packets* (see `envs.running.outbox`), in the size and form for sending.

Everything survives `kill -9` at once. Steps that change a group's state are also flushed to the disk,
so a power cut costs unfinished turns at most. Bodies carry checksums: a damaged one costs its own
group, and a damaged file costs its unreadable rows.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
import zlib
from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

from envs.records.disk import is_transient
from envs.running.database import RunDirectoryError, lock_directory, mark_suspect, open_database, read_database
from envs.running.identity import DirectoryState, is_known, name_run

logger = logging.getLogger(__name__)

T = TypeVar("T")

FILE_NAME = "state.db"


class Journal:
    """The state of the run in `directory`. Use it as `async with`.

    stopping: whether the run was asked to stop; then a write to a full disk fails, instead of waiting.
    Entering raises RunDirectoryError when another process works in the directory, and when the file of an earlier run
    there was emptied.
    """

    full_pause_s = 5.0
    """Pause before another try of a write to a full disk, in seconds."""
    gather_s = 0.05
    """How long turns are gathered before they are written together, in seconds."""

    def __init__(self, directory: Path, stopping: Callable[[], bool] = lambda: False) -> None:
        self.path = directory / FILE_NAME
        self._stopping = stopping
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._open_files = ExitStack()
        self._db: sqlite3.Connection
        self._turns: deque[tuple[int, int, bytes, int]] = deque()
        self._closing = False
        self._flushes: bool | None = None

    @staticmethod
    def reading(directory: Path) -> AbstractContextManager[sqlite3.Connection]:
        """Open a run's file for reading, also while the run goes on. Raises RunDirectoryError."""
        return read_database(directory / FILE_NAME)

    async def __aenter__(self) -> Self:
        await self._run(self._open)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._closing = True
        try:
            await self._run(self._write_turns)
        except (sqlite3.OperationalError, OSError) as error:
            logger.error("%s: %s; turns that were not written are sampled again", self.path, error)
        await asyncio.to_thread(self._thread.shutdown)
        self._open_files.close()

    async def write(self, work: Callable[[sqlite3.Connection], T], *, flush: bool = False) -> T:
        """Do `work` in one transaction, wholly or not at all, waiting while the disk is full or away.

        flush: it is on the disk, not only with the system, when this returns."""
        return await self._run(lambda: self._checked_read(lambda: self._transaction(work, flush)))

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of reading by `work`, waiting while the disk is away."""
        return await self._run(lambda: self._checked_read(lambda: self._retry_while_full(lambda: work(self._db))))

    # The run

    async def identify(
        self, identity: Mapping[str, Any], conditions: Mapping[str, Any] | None = None, allowed: Collection[str] = ()
    ) -> DirectoryState:
        """Return the directory's state of an earlier part of this run. Raises RunDirectoryError when it holds
        another run: one that differs in a value of `identity`, or in a value of `conditions` that is not `allowed`."""
        return await self.write(lambda db: is_known(db, identity, self.path.parent, conditions or {}, allowed))

    async def run_id(self) -> str:
        """Return the id of the run, from its first start."""
        return await self.read(lambda db: str(db.execute("SELECT value FROM run WHERE key = 'id'").fetchone()[0]))

    async def remember(self, key: str, default: str) -> str:
        """Return the value kept under `key`. Without one, `default` is kept and returned."""

        def work(db: sqlite3.Connection) -> str:
            db.execute("INSERT OR IGNORE INTO run VALUES (?, ?)", (key, default))
            return str(db.execute("SELECT value FROM run WHERE key = ?", (key,)).fetchone()[0])

        return await self.write(work)

    async def replace(self, key: str, value: str) -> None:
        """Keep `value` under `key`."""
        await self.write(lambda db: db.execute("INSERT OR REPLACE INTO run VALUES (?, ?)", (key, value)))

    # Turns

    def add_turn(self, number: int, member: int, body: bytes) -> None:
        """Note a turn of a group's member. Returns at once; it is written soon, in the background."""
        self._turns.append((number, member, body, zlib.crc32(body)))
        if len(self._turns) == 1:  # else what writes the first takes this one as well
            asyncio.get_running_loop().call_later(self.gather_s, self._submit_turns)

    async def turns(self, number: int, member: int) -> list[bytes]:
        """Return the turns of an unjudged member, without damaged ones."""

        def work(db: sqlite3.Connection) -> list[bytes]:
            query = "SELECT body, crc FROM turns WHERE number = ? AND member = ? ORDER BY rowid"
            return [body for body, crc in db.execute(query, (number, member)) if zlib.crc32(body) == crc]

        return await self.write(work)

    async def forget_turns(self, number: int, member: int) -> None:
        """Delete a member's turns."""
        delete = "DELETE FROM turns WHERE number = ? AND member = ?"
        await self.write(lambda db: db.execute(delete, (number, member)))

    # In the thread

    def _submit_turns(self) -> None:
        if not self._closing:
            self._thread.submit(self._write_turns).add_done_callback(_log_failure)

    def _write_turns(self) -> None:
        while self._turns:
            self._transaction(lambda _: None, False)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _checked_read(self, work: Callable[[], T]) -> T:
        """Do `work`. Raises RunDirectoryError if the file, or a value in it, can't be read."""
        try:
            return work()
        except RunDirectoryError:
            raise
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise RunDirectoryError(
                f"{self.path} holds what can't be read ({type(error).__name__}: {error}), as if another program had "
                "written it; take it from a copy, or give another --env.run_dir"
            ) from error
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", None) not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise
            mark_suspect(self.path)
            raise RunDirectoryError(f"{self.path} is damaged ({error}); start again, which repairs it") from error

    def _transaction(self, work: Callable[[sqlite3.Connection], T], flush: bool) -> T:
        """Do `work` and write the turns so far."""

        def once() -> T:
            if flush != self._flushes:
                self._db.execute(f"PRAGMA synchronous = {'FULL' if flush else 'NORMAL'}")
                self._flushes = flush
            turns = list(self._turns)
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.executemany("INSERT INTO turns VALUES (?, ?, ?, ?)", turns)
                result = work(self._db)
            for _ in turns:
                self._turns.popleft()
            return result

        return self._retry_while_full(once)

    def _retry_while_full(self, work: Callable[[], T]) -> T:
        """Do `work`, again and again while the disk is full or away and the run goes on."""
        while True:
            try:
                return work()
            except (sqlite3.OperationalError, OSError) as error:
                if not is_transient(error):
                    raise
                if self._is_ending:
                    logger.error("%s: %s; this was not done, because the run ends", self.path, error)
                    raise
                logger.error("%s: %s; everything waits until it can be written", self.path, error)
                pause = time.monotonic() + self.full_pause_s
                while time.monotonic() < pause and not self._is_ending:
                    time.sleep(min(0.1, self.full_pause_s))

    @property
    def _is_ending(self) -> bool:
        return self._closing or self._stopping()

    def _open(self) -> None:
        with ExitStack() as opening:
            lock = opening.enter_context(lock_directory(self.path.parent))
            self._db = open_database(self.path)
            opening.callback(self._db.close)
            name_run(self._db, lock, self.path)
            self._open_files = opening.pop_all()


def _log_failure(write: Any) -> None:
    # A full disk was reported already.
    if not write.cancelled() and (error := write.exception()) is not None and not is_transient(error):
        logger.error("a turn could not be journalled", exc_info=error)
