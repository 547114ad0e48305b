"""The outbox: packets of rows on disk, from the completion of their groups until no API can lose them.

    waiting ──► ready ◄──► sending ──► queued ──► batched ──► forgotten

A packet is *waiting* while its single row waits for others, *ready* to be sent, *sending* from before the first byte
leaves until the answer is there, and *queued* once the trainer API has taken it. It is *batched* when it has left
the API's queue in one of several batches. The API still holds all of these but the one that it handed out. It forms
the next batches when those are gone: then the packet is forgotten. Packets that are never sent again are kept in
`aside/`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sqlite3
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from envs.delivery.notes import Attempt, KnownAPI
from envs.delivery.packing import Packet
from envs.running import group as groups
from envs.running.group import Group
from envs.running.journal import Journal
from envs.types import GroupState

logger = logging.getLogger(__name__)

_API = "api"
"""Key of the run's values for the known API."""

_LAST = "confirmed"
"""The same, of the packet that was confirmed last."""


class Outbox:
    """The packets of a run's journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._aside = journal.path.parent / "aside"
        self.changed = asyncio.Event()
        """Set when a packet has become ready to be sent."""
        self.ready = 0
        """Packets to be sent, as of the last look."""
        self.bytes = 0
        """Size of everything in the outbox, as of the last look."""

    async def add(
        self, group: Group, packets: Sequence[Packet], waiting: Sequence[Packet], stale: Sequence[Packet] = ()
    ) -> None:
        """Take in a complete group. packets: sendable rows; waiting: single rows that wait for others, in
        place of all earlier waiting ones. stale: rows that have waited for too long, to be kept aside."""

        def work(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM packets WHERE state = 'waiting'")
            for packet in stale:
                self._put_aside(db, packet, GroupState.STALE, "a row of it waited for others for too many steps")
            for kind, some in (("ready", packets), ("waiting", waiting)):
                for packet in some:
                    values = (kind, packet.name, packet.step, json.dumps(packet.rows), packet.body)
                    columns = "state, name, step, rows, body, crc, longest"
                    insert = f"INSERT INTO packets ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)"
                    db.execute(insert, (*values, zlib.crc32(packet.body), packet.longest))
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
        return await self._journal.write(lambda db: list(self._sound_packets(db, "state = 'waiting' ORDER BY id")))

    # What is sent; see `envs.delivery.sender.Outbox`

    async def next_packet(self, after: int = 0) -> Packet | None:
        """Return the oldest packet to be sent, those after the one with the id `after` first. Update the counts of the
        packets."""

        def work(db: sqlite3.Connection) -> tuple[Packet | None, int, int]:
            packet = next(self._sound_packets(db, f"state = 'ready' ORDER BY id <= {int(after)}, id"), None)
            query = (
                "SELECT count(*) FILTER (WHERE state = 'ready'), coalesce(sum(length(body)), 0) FROM packets "
                "WHERE state != 'batched'"
            )
            return packet, *db.execute(query).fetchone()

        packet, self.ready, self.bytes = await self._journal.write(work)
        return packet

    async def begin(self, packet: Packet, attempt: Attempt) -> None:
        """Note that a packet is about to be sent."""
        values = (attempt.env_id, json.dumps(asdict(attempt)), packet.id)
        change = (
            "UPDATE packets SET state = 'sending', env_id = ?, attempt = ?, "
            "turn = (SELECT max(turn) + 1 FROM packets) WHERE id = ?"
        )
        await self._journal.write(lambda db: db.execute(change, values), flush=True)

    async def packets_in_doubt(self) -> list[tuple[Packet, Attempt]]:
        """Return the packets that were about to be sent and are neither confirmed nor taken back."""

        def work(db: sqlite3.Connection) -> list[tuple[Packet, Attempt]]:
            find = "SELECT attempt FROM packets WHERE id = ?"
            return [
                (packet, Attempt(**json.loads(db.execute(find, (packet.id,)).fetchone()[0])))
                for packet in self._sound_packets(db, "state = 'sending' ORDER BY turn")
            ]

        return await self._journal.write(work)

    async def take_back(self, packet: Packet) -> None:
        """Note that a packet did not arrive."""
        change = "UPDATE packets SET state = 'ready' WHERE id = ?"
        await self._journal.write(lambda db: db.execute(change, (packet.id,)))

    async def confirm(self, packet: Packet) -> None:
        """Note that the trainer API has taken a packet. It is kept until the API has handed it on."""

        def work(db: sqlite3.Connection) -> None:
            db.execute("UPDATE packets SET state = 'queued' WHERE id = ?", (packet.id,))
            _save_value(db, _LAST, packet.name)
            for number, rows in packet.rows.items():
                groups.rows_sent(db, number, rows)

        await self._journal.write(work, flush=True)
        self.ready -= 1

    async def last_confirmed(self) -> str | None:
        """Return the name of the packet that was confirmed last."""
        return await self._journal.write(lambda db: _load_value(db, _LAST))

    async def environments(self) -> list[int]:
        """Return our ids of packets that are in the API's queue, or may be."""
        query = "SELECT DISTINCT env_id FROM packets WHERE state IN ('queued', 'sending') AND env_id >= 0"
        return await self._journal.write(lambda db: [found for (found,) in db.execute(query)])

    # What the API does with it

    async def note_handed_on(self, left: Mapping[int, int], *, formed: int, api: KnownAPI) -> None:
        """Note the packets that have left the API's queue, and keep the known facts on it. left: how many remain, by
        the id under which they were sent; formed: batches since the last look."""
        gone = (
            "SELECT id FROM packets WHERE state = 'queued' AND env_id = ? ORDER BY turn DESC, id DESC LIMIT -1 OFFSET ?"
        )

        def work(db: sqlite3.Connection) -> None:
            if formed > 0:
                db.execute("DELETE FROM packets WHERE state = 'batched'")
            for env_id, count in left.items():
                db.execute(f"UPDATE packets SET state = 'batched' WHERE id IN ({gone})", (env_id, count))
            if formed == 1:  # a single batch is handed out as it is formed
                db.execute("DELETE FROM packets WHERE state = 'batched'")
            _save_value(db, _API, json.dumps(asdict(api)))

        await self._journal.write(work)

    async def note_lost_by_api(
        self, *, batch: int, env_id: int, stored: str | None, doubtful: Collection[str]
    ) -> tuple[int, int]:
        """Send packets again that the API has lost with its queue, if they can't have been in a batch. Other packets
        are kept aside, so none reaches a trainer twice: packets that could have made a whole number of batches
        (of `batch` packets), those of batches that may not have been handed out, and doubtful ones. stored: the
        packet in the new API under our id there, `env_id`, if any. doubtful: packets of unknown fate. Returns how
        many of both."""

        def work(db: sqlite3.Connection) -> tuple[int, int]:
            batched = list(self._sound_packets(db, "state = 'batched' ORDER BY turn, id"))
            lost = list(self._sound_packets(db, "state IN ('queued', 'sending') ORDER BY turn, id"))
            for packet in [packet for packet in lost if packet.name == stored]:
                lost.remove(packet)
                self._note_queued(db, packet, env_id)
            cut = len(lost) - len(lost) % batch
            again = [packet for packet in lost[cut:] if packet.name not in doubtful]
            kept = [*batched, *(packet for packet in lost if packet not in again)]
            for packet in kept:
                reason = "the trainer API lost it, perhaps after a batch had it"
                self._put_aside(db, packet, GroupState.UNCERTAIN, reason)
            for packet in again:
                (state,) = db.execute("SELECT state FROM packets WHERE id = ?", (packet.id,)).fetchone()
                db.execute("UPDATE packets SET state = 'ready' WHERE id = ?", (packet.id,))
                if state == "queued":
                    for number, rows in packet.rows.items():
                        groups.rows_lost(db, number, rows)
            return len(again), len(kept)

        counts = await self._journal.write(work, flush=True)
        self.changed.set()
        return counts

    async def put_aside(self, packet: Packet, state: GroupState, reason: str) -> None:
        """Keep a packet in a file of its own and never send it."""
        await self._journal.write(lambda db: self._put_aside(db, packet, state, reason), flush=True)

    async def known_api(self) -> KnownAPI | None:
        """Return the known facts on the API; None before the first registration."""

        def work(db: sqlite3.Connection) -> KnownAPI | None:
            found = _load_value(db, _API)
            if found is None:
                return None
            values: dict[str, Any] = json.loads(found)
            return KnownAPI(**values | {"leaving": tuple(values.get("leaving", ()))})

        return await self._journal.write(work)

    async def save_known_api(self, api: KnownAPI) -> None:
        """Keep the known facts on the API."""
        await self._journal.write(lambda db: _save_value(db, _API, json.dumps(asdict(api))))

    # In the journal's thread

    def _note_queued(self, db: sqlite3.Connection, packet: Packet, env_id: int) -> None:
        (state,) = db.execute("SELECT state FROM packets WHERE id = ?", (packet.id,)).fetchone()
        db.execute("UPDATE packets SET state = 'queued', env_id = ? WHERE id = ?", (env_id, packet.id))
        if state == "sending":
            _save_value(db, _LAST, packet.name)
            for number, rows in packet.rows.items():
                groups.rows_sent(db, number, rows)

    def _put_aside(self, db: sqlite3.Connection, packet: Packet, state: GroupState, reason: str) -> None:
        self._aside.mkdir(exist_ok=True)
        # In a database that was repaired the ids begin again; the contents differ.
        path = self._aside / f"{state}-{packet.id}-{zlib.crc32(packet.body):08x}.json.gz"
        with path.open("wb") as file:
            file.write(packet.body)
            file.flush()
            os.fsync(file.fileno())
        db.execute("DELETE FROM packets WHERE id = ?", (packet.id,))
        for number in packet.rows:
            groups.settle(db, number, state, reason, f"{self._aside.name}/{path.name}")

    def _sound_packets(self, db: sqlite3.Connection, where: str) -> Iterator[Packet]:
        """Return the packets with right checksums; others are put aside."""
        ids = [row[0] for row in db.execute(f"SELECT id FROM packets WHERE {where}")]
        for found in ids:
            query = "SELECT name, step, rows, body, longest, crc FROM packets WHERE id = ?"
            name, step, rows, body, longest, crc = db.execute(query, (found,)).fetchone()
            try:
                counts = {int(number): n for number, n in json.loads(rows).items()}
            except (ValueError, TypeError, AttributeError) as error:
                raise ValueError(f"the rows of packet {found} are {str(rows)[:80]!r}") from error
            packet = Packet(name, step, counts, body, longest, found)
            if zlib.crc32(body) == crc:
                yield packet
            else:
                logger.error("packet %d is damaged on disk; its groups %s are lost", found, list(packet.rows))
                self._put_aside(db, packet, GroupState.CORRUPT, "its packet was damaged on disk")


def _save_value(db: sqlite3.Connection, key: str, value: str) -> None:
    db.execute("INSERT OR REPLACE INTO run VALUES (?, ?)", (key, value))


def _load_value(db: sqlite3.Connection, key: str) -> str | None:
    found = db.execute("SELECT value FROM run WHERE key = ?", (key,)).fetchone()
    return None if found is None else str(found[0])
