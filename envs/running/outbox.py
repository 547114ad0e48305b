"""The outbox: packets of rows on disk, from the moment when their groups are complete until no API can lose them.

A packet is *waiting* while its single row waits for others, *ready* to be sent, and *queued* once the trainer API has
taken it; it is forgotten when the API has handed it on to a trainer. What is never sent again is kept in `aside/`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import zlib
from collections.abc import Iterator, Sequence

from envs.delivery.packing import Packet
from envs.running import group as groups
from envs.running.group import Group
from envs.running.journal import Journal
from envs.types import GroupState

logger = logging.getLogger(__name__)


class Outbox:
    """The packets of a run's journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._aside = journal.path.parent / "aside"
        self.changed = asyncio.Event()
        """Set when a packet has become ready to be sent."""
        self.ready = 0
        """Packets that are to be sent, as of the last look."""
        self.bytes = 0
        """Size of everything in the outbox, as of the last look."""

    async def add(self, group: Group, packets: Sequence[Packet], waiting: Sequence[Packet]) -> None:
        """Take in a complete group. packets: rows that can be sent; waiting: single rows that wait for others, in
        place of all that waited before."""

        def work(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM packets WHERE state = 'waiting'")
            for kind, some in (("ready", packets), ("waiting", waiting)):
                for packet in some:
                    crc = zlib.crc32(packet.body)
                    values = (kind, packet.name, packet.step, json.dumps(packet.rows), packet.body, crc)
                    insert = "INSERT INTO packets (state, name, step, rows, body, crc) VALUES (?, ?, ?, ?, ?, ?)"
                    db.execute(insert, values)
            rows = sum(packet.rows.get(group.number, 0) for packet in (*packets, *waiting))
            group.enter_outbox(db, rows)

        await self._journal.write(work, flush=True)
        group.state = GroupState.OUTBOX
        self.ready += len(packets)
        self.bytes += sum(len(packet.body) for packet in packets)
        if packets:
            self.changed.set()

    async def waiting(self) -> list[Packet]:
        """Return the single rows that wait for others."""
        return await self._journal.write(lambda db: list(self._sound(db, "state = 'waiting' ORDER BY id")))

    async def next_ready(self) -> Packet | None:
        """Return the oldest packet that is to be sent, and look at how many there are."""

        def work(db: sqlite3.Connection) -> tuple[Packet | None, int, int]:
            packet = next(self._sound(db, "state = 'ready' ORDER BY id"), None)
            query = "SELECT count(*) FILTER (WHERE state = 'ready'), coalesce(sum(length(body)), 0) FROM packets"
            return packet, *db.execute(query).fetchone()

        packet, self.ready, self.bytes = await self._journal.write(work)
        return packet

    async def confirm(self, packet: Packet) -> None:
        """Note that the trainer API has taken a packet. It is kept until the API has handed it on."""

        def work(db: sqlite3.Connection) -> None:
            db.execute("UPDATE packets SET state = 'queued' WHERE id = ?", (packet.id,))
            for number, rows in packet.rows.items():
                groups.rows_sent(db, number, rows)

        await self._journal.write(work, flush=True)
        self.ready -= 1

    async def handed_on(self, *, left: int) -> None:
        """Forget the packets that are no longer in the API's queue, which holds at most `left` of ours."""
        oldest = "SELECT id FROM packets WHERE state = 'queued' ORDER BY id DESC LIMIT -1 OFFSET ?"
        await self._journal.write(lambda db: db.execute(f"DELETE FROM packets WHERE id IN ({oldest})", (left,)))

    async def lost_by_api(self, *, batch: int) -> tuple[int, int]:
        """Send again what the API has lost with its queue, where it can't have been in a batch. Packets of which a
        whole number of batches (of `batch` packets) could have been made are kept aside, so that none reaches a
        trainer twice. Returns how many of both."""

        def work(db: sqlite3.Connection) -> tuple[int, int]:
            queued = list(self._sound(db, "state = 'queued' ORDER BY id"))
            cut = len(queued) - len(queued) % batch
            for packet in queued[:cut]:
                reason = "the trainer API lost it, perhaps after a batch had it"
                self._put_aside(db, packet, GroupState.UNCERTAIN, reason)
            for packet in queued[cut:]:
                db.execute("UPDATE packets SET state = 'ready' WHERE id = ?", (packet.id,))
                for number, rows in packet.rows.items():
                    groups.rows_lost(db, number, rows)
            return len(queued) - cut, cut

        again = await self._journal.write(work, flush=True)
        self.changed.set()
        return again

    async def put_aside(self, packet: Packet, state: GroupState, reason: str) -> None:
        """Keep a packet in a file of its own and never send it."""
        await self._journal.write(lambda db: self._put_aside(db, packet, state, reason), flush=True)

    async def environment_id(self, new: int) -> int | None:
        """Return the id under which the trainer API knew us before, and keep the `new` one."""
        former = await self._journal.remember("env_id", "")
        await self._journal.replace("env_id", str(new))
        return int(former) if former else None

    # In the journal's thread

    def _put_aside(self, db: sqlite3.Connection, packet: Packet, state: GroupState, reason: str) -> None:
        self._aside.mkdir(exist_ok=True)
        path = self._aside / f"{state}-{packet.id}.json.gz"
        path.write_bytes(packet.body)
        db.execute("DELETE FROM packets WHERE id = ?", (packet.id,))
        for number in packet.rows:
            groups.settle(db, number, state, reason, f"{self._aside.name}/{path.name}")

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
                logger.error("packet %d is damaged on disk; its groups %s are lost", found, list(packet.rows))
                self._put_aside(db, packet, GroupState.CORRUPT, "its packet was damaged on disk")
