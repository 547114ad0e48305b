"""Rows in packets of one size, the only size never held back by the trainer API.

A packet is kept and sent as it is: gzip of the wire form's JSON without the first brace.
`TrainerAPI.send` puts the environment's id before it.
"""

from __future__ import annotations

import gzip
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from envs.delivery.rows import Row, ScoredGroup, read_rows, to_wire


@dataclass(frozen=True, slots=True)
class Packet:
    """Rows to be sent together.

    name: unique, also sent to the trainer as `delivery_id`; step: the trainer's when the oldest of its groups was
    complete; rows: number of rows by the number of their group; body: see the module's docstring; longest: tokens of
    the longest row; id: the outbox's, 0 before it is stored.
    """

    name: str
    step: int
    rows: Mapping[int, int]
    body: bytes
    longest: int = 0
    id: int = 0


class RowPacker:
    """Makes packets of exactly `size` rows.

    A group of that many rows becomes one packet. Rows of other groups are cut and joined, since their advantages are
    explicit; fewer than `size` of them wait for the next group. waiting: single rows left by an earlier packer.
    """

    def __init__(self, size: int, waiting: Sequence[Packet] = ()) -> None:
        self._size = size
        self._waiting = [row for packet in waiting for row in _unpack(packet)]

    def take_stale(self, step: int, most: int) -> list[Packet]:
        """Take out the waiting rows of groups that were complete more than `most` steps before `step`, the trainer's.
        Groups without rows to be joined may come between for long."""
        stale = [row for row in self._waiting if step - _step_of(row, step) > most]
        self._waiting = [row for row in self._waiting if step - _step_of(row, step) <= most]
        return [_pack([row], step) for row in stale]

    def add(self, group: ScoredGroup, *, step: int) -> tuple[list[Packet], list[Packet]]:
        """Return packets ready to be sent, and every single row still waiting. step: the trainer's."""
        if len(group.rows) == self._size:
            return [_pack(group.rows, step, group)], [_pack([row], step) for row in self._waiting]
        self._waiting += group.rows
        packets = []
        while len(self._waiting) >= self._size:
            packets.append(_pack(self._waiting[: self._size], step))
            del self._waiting[: self._size]
        return packets, [_pack([row], step) for row in self._waiting]


def _pack(rows: Sequence[Row], step: int, group: ScoredGroup | None = None) -> Packet:
    name = uuid.uuid4().hex
    wire = to_wire(rows, group.dropped if group is not None else ())
    wire["generation_params"]["delivery_id"] = name
    counts = Counter(row.origin.number for row in rows)
    body = gzip.compress(orjson.dumps(wire)[1:], compresslevel=1)
    oldest = min(_step_of(row, step) for row in rows)
    return Packet(name, oldest, counts, body, max(len(row.tokens) for row in rows))


def _step_of(row: Row, now: int) -> int:
    """Return the trainer's step when a row's group was complete; `now` if it is not known."""
    return now if row.origin.step is None else row.origin.step


def _unpack(packet: Packet) -> list[Row]:
    (number,) = packet.rows
    return read_rows(orjson.loads(b"{" + gzip.decompress(packet.body)), number)
