"""What a run has done so far, on disk: one SQLite file, from which a later start continues.

Each task drawn is a *group* with a number, in one row of `groups` that says what became of it:

    working ──► spooled ──► delivered       confirmed by the trainer API
       │           └──────► stale, refused, uncertain, corrupt    kept in `aside/`, never sent again
       ├──► flat, empty                     all rewards equal, not sent by choice; or no row was sound
       └──► failed, skipped, gone           its task was set aside now or before, or is no longer there

While it is working, `members` says where in `rollouts.jsonl` its judged rollouts stand, and `turns` holds
every exchange with the engine of the others. When it is complete, one transaction replaces all that by
*packets*: rows in the size and form in which they are sent.

Everything survives `kill -9` at once. Steps that change a group's state are also flushed to the disk,
so that a power cut costs unfinished turns at most. Bodies carry checksums: a damaged one costs its own
group, and a damaged file costs what can't be read of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import sqlite3
import time
import uuid
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar

from envs.records.atif import Place
from envs.records.disk import no_space

logger = logging.getLogger(__name__)

T = TypeVar("T")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS run (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS groups (
    number INTEGER PRIMARY KEY, task TEXT NOT NULL, state TEXT NOT NULL, rows INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS members (
    number INTEGER NOT NULL, slot INTEGER NOT NULL, place INTEGER NOT NULL, size INTEGER NOT NULL,
    crc INTEGER NOT NULL, PRIMARY KEY (number, slot));
CREATE TABLE IF NOT EXISTS turns (
    number INTEGER NOT NULL, slot INTEGER NOT NULL, body BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS turns_of ON turns (number, slot);
CREATE TABLE IF NOT EXISTS packets (
    id INTEGER PRIMARY KEY AUTOINCREMENT, state TEXT NOT NULL, name TEXT NOT NULL, step INTEGER NOT NULL,
    rows TEXT NOT NULL, body BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS faults (task TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
"""
_TABLES = ("run", "groups", "members", "turns", "packets", "faults")


class RunDirectoryError(ValueError):
    """The run directory can't be used as it is; the message names the remedy."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A group that was being worked on. members: by slot, where the judged ones stand."""

    number: int
    task: str
    members: Mapping[int, Place]


@dataclass(frozen=True, slots=True)
class Packet:
    """Rows to be sent together.

    name: unique, also told to the trainer; step: the trainer's when they were made; rows: how many
    of which group (by number); body: see `envs.delivery.sender`.
    """

    name: str
    step: int
    rows: Mapping[int, int]
    body: bytes
    id: int = 0


class Journal:
    """The state of the run in `directory`. Use it as `async with`.

    Entering raises RunDirectoryError when another process works in the directory. A file that
    can't be read is moved aside and what is readable of it is taken over.
    """

    full_pause_s = 5.0
    """Pause before a write is tried again that found the disk full, in seconds."""
    gather_s = 0.05
    """How long turns are gathered before they are written together, in seconds."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "state.db"
        self._aside = directory / "aside"
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._lock: BinaryIO | None = None
        self._db: sqlite3.Connection
        self._turns: deque[tuple[int, int, bytes, int]] = deque()
        self._closing = False
        self._flushes: bool | None = None
        self.changed = asyncio.Event()
        """Set when a packet has become ready to be sent."""

    async def __aenter__(self) -> Self:
        await self._run(self._open)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._closing = True
        await self._run(self._write_turns)
        await asyncio.to_thread(self._thread.shutdown)
        self._db.close()
        assert self._lock is not None  # noqa: S101 - opened on entering
        self._lock.close()

    # The run

    async def identify(self, identity: Mapping[str, Any]) -> bool:
        """Whether the directory holds an earlier part of this run. Raises RunDirectoryError when it
        holds another run: one that differs in a value of `identity`."""

        def work(db: sqlite3.Connection) -> bool:
            known = dict(db.execute("SELECT key, value FROM run WHERE key LIKE 'is:%'"))
            differs = [
                f"{key} is {value!r}, it was {json.loads(known['is:' + key])!r}"
                for key, value in identity.items()
                if "is:" + key in known and known["is:" + key] != json.dumps(value)
            ]
            if differs:
                raise RunDirectoryError(
                    f"{self.path.parent} holds a run that can't be continued with these options: "
                    f"{'; '.join(differs)}. Set them back, or give another --env.run_dir"
                )
            for key, value in identity.items():
                db.execute("INSERT OR IGNORE INTO run VALUES (?, ?)", ("is:" + key, json.dumps(value)))
            return bool(known)

        return await self._write(work)

    async def remember(self, key: str, default: str) -> str:
        """The value kept under `key`; `default`, which is then kept, when there is none."""

        def work(db: sqlite3.Connection) -> str:
            db.execute("INSERT OR IGNORE INTO run VALUES (?, ?)", (key, default))
            return str(db.execute("SELECT value FROM run WHERE key = ?", (key,)).fetchone()[0])

        return await self._write(work)

    async def replace(self, key: str, value: str) -> None:
        """Keep `value` under `key`."""
        await self._write(lambda db: db.execute("INSERT OR REPLACE INTO run VALUES (?, ?)", (key, value)))

    async def order_from(self, tasks: str) -> int:
        """The number of the first group in the present order of tasks; another set of `tasks` (a digest)
        begins a new order."""

        def work(db: sqlite3.Connection) -> int:
            known = db.execute("SELECT value FROM run WHERE key = 'order'").fetchone()
            digest, _, first = known[0].partition("@") if known else ("", "", "0")
            if digest != tasks:
                if digest:
                    logger.warning("the tasks are not those of the earlier start; a new order of tasks begins")
                first = str(_next_number(db))
                db.execute("INSERT OR REPLACE INTO run VALUES ('order', ?)", (f"{tasks}@{first}",))
            return int(first)

        return await self._write(work)

    # Groups

    async def start_group(self, task: Callable[[int], str]) -> int:
        """Note that the next group is worked on: `task(number)` is its task. Returns its number."""

        def work(db: sqlite3.Connection) -> int:
            number = _next_number(db)
            db.execute("INSERT INTO groups (number, task, state) VALUES (?, ?, 'working')", (number, task(number)))
            return number

        return await self._write(work)

    async def unfinished(self) -> list[Unfinished]:
        """The groups that were being worked on, in the order in which they were drawn."""

        def work(db: sqlite3.Connection) -> list[Unfinished]:
            groups = db.execute("SELECT number, task FROM groups WHERE state = 'working' ORDER BY number").fetchall()
            members = "SELECT slot, place, size, crc FROM members WHERE number = ?"
            return [
                Unfinished(number, task, {slot: Place(*place) for slot, *place in db.execute(members, (number,))})
                for number, task in groups
            ]

        return await self._write(work)

    async def add_member(self, number: int, slot: int, place: Place) -> None:
        """Note a judged rollout of a group; its turns are no longer needed."""

        def work(db: sqlite3.Connection) -> None:
            values = (number, slot, place.offset, place.size, place.crc)
            db.execute("INSERT OR REPLACE INTO members VALUES (?, ?, ?, ?, ?)", values)
            db.execute("DELETE FROM turns WHERE number = ? AND slot = ?", (number, slot))

        await self._write(work)

    async def finish_group(
        self, number: int, state: str, *, packets: Sequence[Packet] = (), waiting: Sequence[Packet] = ()
    ) -> None:
        """Note what became of a group: its rows are in `packets`, to be sent, and in `waiting`, single
        rows that wait for others; both replace what was waiting before. With neither, `state` is its end."""

        def work(db: sqlite3.Connection) -> None:
            rows: Counter[int] = Counter()
            if packets or waiting:
                db.execute("DELETE FROM packets WHERE state = 'waiting'")
            for kind, some in (("ready", packets), ("waiting", waiting)):
                for packet in some:
                    rows.update(packet.rows)
                    crc = zlib.crc32(packet.body)
                    values = (kind, packet.name, packet.step, json.dumps(packet.rows), packet.body, crc)
                    insert = "INSERT INTO packets (state, name, step, rows, body, crc) VALUES (?, ?, ?, ?, ?, ?)"
                    db.execute(insert, values)
            db.execute("UPDATE groups SET state = ?, rows = ? WHERE number = ?", (state, rows[number], number))
            db.execute("DELETE FROM members WHERE number = ?", (number,))
            db.execute("DELETE FROM turns WHERE number = ?", (number,))

        await self._write(work, flush=True)
        if packets:
            self.changed.set()

    async def restart_group(self, number: int) -> None:
        """Forget what was done for a group that is worked on."""

        def work(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM members WHERE number = ?", (number,))
            db.execute("DELETE FROM turns WHERE number = ?", (number,))

        await self._write(work)

    async def counts(self) -> Counter[str]:
        """Groups by state; their sum is the number of groups ever started."""
        return await self._write(
            lambda db: Counter(dict(db.execute("SELECT state, count(*) FROM groups GROUP BY state")))
        )

    # Turns

    def add_turn(self, number: int, slot: int, body: bytes) -> None:
        """Note an exchange with the engine. Returns at once; it is written soon, in the background."""
        self._turns.append((number, slot, body, zlib.crc32(body)))
        if len(self._turns) == 1:  # else what writes the first takes this one as well
            asyncio.get_running_loop().call_later(self.gather_s, self._submit_turns)

    async def turns(self, number: int, slot: int) -> list[bytes]:
        """The exchanges of a member that has not been judged, without damaged ones."""

        def work(db: sqlite3.Connection) -> list[bytes]:
            query = "SELECT body, crc FROM turns WHERE number = ? AND slot = ? ORDER BY rowid"
            return [body for body, crc in db.execute(query, (number, slot)) if zlib.crc32(body) == crc]

        return await self._write(work)

    async def forget_turns(self, number: int, slot: int) -> None:
        await self._write(lambda db: db.execute("DELETE FROM turns WHERE number = ? AND slot = ?", (number, slot)))

    # Tasks

    async def count_fault(self, task: str) -> int:
        """Note that a task failed by our fault. Returns how often it did."""

        def work(db: sqlite3.Connection) -> int:
            db.execute("INSERT INTO faults VALUES (?, 1) ON CONFLICT (task) DO UPDATE SET count = count + 1", (task,))
            return int(db.execute("SELECT count FROM faults WHERE task = ?", (task,)).fetchone()[0])

        return await self._write(work)

    async def faults(self) -> Counter[str]:
        """How often tasks failed by our fault."""
        return await self._write(lambda db: Counter(dict(db.execute("SELECT task, count FROM faults"))))

    # Packets

    async def waiting(self) -> list[Packet]:
        """Single rows that wait for others."""
        return await self._write(lambda db: list(self._sound(db, "state = 'waiting' ORDER BY id")))

    async def next_ready(self) -> Packet | None:
        """The oldest packet that is to be sent."""
        return await self._write(lambda db: next(self._sound(db, "state = 'ready' ORDER BY id"), None))

    async def spooled(self) -> tuple[int, int]:
        """Packets that are to be sent, and bytes of everything in the spool."""

        def work(db: sqlite3.Connection) -> tuple[int, int]:
            query = "SELECT count(*) FILTER (WHERE state = 'ready'), coalesce(sum(length(body)), 0) FROM packets"
            ready, size = db.execute(query).fetchone()
            return int(ready), int(size)

        return await self._write(work)

    async def confirm(self, packet: Packet) -> None:
        """The trainer API has taken a packet. It is kept until the API has handed it on (`handed_on`)."""

        def work(db: sqlite3.Connection) -> None:
            db.execute("UPDATE packets SET state = 'queued' WHERE id = ?", (packet.id,))
            for number, rows in packet.rows.items():
                db.execute("UPDATE groups SET rows = rows - ? WHERE number = ?", (rows, number))
                done = "UPDATE groups SET state = 'delivered' WHERE number = ? AND state = 'spooled' AND rows <= 0"
                db.execute(done, (number,))

        await self._write(work, flush=True)

    async def handed_on(self, *, left: int) -> None:
        """At most `left` of the packets taken are still in the API's queue; the others are forgotten."""
        oldest = "SELECT id FROM packets WHERE state = 'queued' ORDER BY id DESC LIMIT -1 OFFSET ?"
        await self._write(lambda db: db.execute(f"DELETE FROM packets WHERE id IN ({oldest})", (left,)))

    async def lost_by_api(self, *, batch: int) -> tuple[int, int]:
        """The API has lost its queue. Packets that can't have been in a batch are sent again; those of
        which a whole number of batches (of `batch` packets) could have been made are set aside, so
        that none reaches a trainer twice. Returns how many of both."""

        def work(db: sqlite3.Connection) -> tuple[int, int]:
            queued = list(self._sound(db, "state = 'queued' ORDER BY id"))
            cut = len(queued) - len(queued) % batch
            for packet in queued[:cut]:
                self._put_aside(db, packet, "uncertain")
            for packet in queued[cut:]:
                db.execute("UPDATE packets SET state = 'ready' WHERE id = ?", (packet.id,))
                for number, rows in packet.rows.items():
                    again = "UPDATE groups SET rows = max(rows, 0) + ?, state = 'spooled' WHERE number = ?"
                    db.execute(again, (rows, number))
            return len(queued) - cut, cut

        again = await self._write(work, flush=True)
        self.changed.set()
        return again

    async def put_aside(self, packet: Packet, state: str) -> None:
        """Keep a packet in a file of its own and never send it; `state` says why."""
        await self._write(lambda db: self._put_aside(db, packet, state), flush=True)

    # In the thread

    def _put_aside(self, db: sqlite3.Connection, packet: Packet, state: str) -> None:
        self._aside.mkdir(exist_ok=True)
        (self._aside / f"{state}-{packet.id}.json.gz").write_bytes(packet.body)
        db.execute("DELETE FROM packets WHERE id = ?", (packet.id,))
        for number in packet.rows:
            db.execute("UPDATE groups SET state = ? WHERE number = ?", (state, number))

    def _sound(self, db: sqlite3.Connection, where: str) -> Iterator[Packet]:
        """Packets whose checksums are right; others are put aside."""
        ids = [row[0] for row in db.execute(f"SELECT id FROM packets WHERE {where}")]
        for found in ids:
            query = "SELECT name, step, rows, body, crc FROM packets WHERE id = ?"
            name, step, rows, body, crc = db.execute(query, (found,)).fetchone()
            packet = Packet(name, step, {int(number): n for number, n in json.loads(rows).items()}, body, found)
            if zlib.crc32(body) == crc:
                yield packet
            else:
                logger.error("packet %d in %s is damaged; its groups %s are lost", found, self.path, list(packet.rows))
                self._put_aside(db, packet, "corrupt")

    def _submit_turns(self) -> None:
        if not self._closing:
            self._thread.submit(self._write_turns).add_done_callback(_log_failure)

    def _write_turns(self) -> None:
        while self._turns:
            self._transaction(lambda _: None, False)

    async def _write(self, work: Callable[[sqlite3.Connection], T], *, flush: bool = False) -> T:
        return await self._run(lambda: self._transaction(work, flush))

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _transaction(self, work: Callable[[sqlite3.Connection], T], flush: bool) -> T:
        """Do `work`, and write the turns so far, wholly or not at all, waiting while the disk is full."""
        while True:
            try:
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
            except (sqlite3.OperationalError, OSError) as error:
                if not no_space(error) or self._closing:
                    raise
                logger.error("%s: %s; everything waits until there is room", self.path, error)
                time.sleep(self.full_pause_s)

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = (self.path.parent / "lock").open("wb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise RunDirectoryError(
                f"another process works in {self.path.parent}; stop it, or give another --env.run_dir"
            ) from None
        try:
            self._db = _connect(self.path)
        except sqlite3.DatabaseError as error:
            logger.error("%s is damaged (%s); taking over what can be read of it", self.path, error)
            self._db = _salvage(self.path)


def _next_number(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT coalesce(max(number), -1) + 1 FROM groups").fetchone()[0])


def _connect(path: Path) -> sqlite3.Connection:
    """Raises sqlite3.DatabaseError when the file is damaged."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise sqlite3.DatabaseError(found)
        db.executescript(_SCHEMA)
    except sqlite3.DatabaseError:
        db.close()
        raise
    return db


def _salvage(path: Path) -> sqlite3.Connection:
    """Move a damaged file aside and copy its readable rows into a new one. Groups of which nothing
    can be told any more get the state "corrupt"."""
    old = path.with_name(f"{path.stem}.damaged-{uuid.uuid4().hex[:6]}{path.suffix}")
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(old.with_name(old.name + suffix))
    db = _connect(path)
    source = sqlite3.connect(old, isolation_level=None)
    copied = 0
    with db:
        for table in _TABLES:
            for row in _readable(source, table):
                marks = ", ".join("?" * len(row))
                copied += db.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row).rowcount
        lost = _account(db)
    source.close()
    logger.error("%s: %d rows taken over, %d groups lost; the old file is %s", path, copied, lost, old)
    return db


def _account(db: sqlite3.Connection) -> int:
    """Make groups and packets agree again. Returns the number of groups of which nothing is left."""
    held: Counter[int] = Counter()
    for (rows,) in db.execute("SELECT rows FROM packets WHERE state != 'queued'"):
        held.update({int(number): count for number, count in json.loads(rows).items()})
    known = dict(db.execute("SELECT number, state FROM groups"))
    # A group is what its packets say; without them a spooled one will never be delivered.
    states = {n: "corrupt" for n in range(max([*known, *held], default=-1)) if n not in known}
    states |= {n: "corrupt" for n, state in known.items() if state == "spooled"}
    states |= dict.fromkeys(held, "spooled")
    for number, state in states.items():
        upsert = "INSERT INTO groups VALUES (?, '', ?, ?) ON CONFLICT DO UPDATE SET state = ?, rows = ?"
        db.execute(upsert, (number, state, held[number], state, held[number]))
    return sum(state == "corrupt" for state in states.values())


def _readable(db: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a damaged table up to the damage, from both ends."""
    for order in ("ASC", "DESC"):
        key = "key" if table == "run" else "task" if table == "faults" else "rowid"
        try:
            yield from db.execute(f"SELECT * FROM {table} ORDER BY {key} {order}")
            return
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            logger.warning("table %s of the damaged file: %s", table, error)


def _log_failure(write: Any) -> None:
    if not write.cancelled() and (error := write.exception()) is not None:
        logger.error("a turn could not be journalled", exc_info=error)
