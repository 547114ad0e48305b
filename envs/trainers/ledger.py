"""Record the rows trained on by a trainer in this process, for its checkpoint."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple


class HandedRow(NamedTuple):
    """A row handed to a trainer: its group, its number in it, its rollout and the rollout's reward."""

    group: str
    row: int
    rollout: str = ""
    reward: float = 0.0


class Ledger:
    """The rows of groups handed to a trainer, from there to the weights.

    handed ──► got ──► packed into a batch ──► trained when the step of that batch is done

    A trainer gets rows ahead of its step, and may drop some, such as old ones. It keeps their order. So
    a row was dropped if it came before the last row of a batch, and is in none. A group is done when each
    of its rows was trained on or dropped.

    trained: names of finished groups, as `state` gives them. partly: of others, the numbers of the finished rows.
    """

    def __init__(
        self, trained: Collection[str | Sequence[str]] = (), partly: Mapping[str, Collection[int]] | None = None
    ) -> None:
        self.trained = set(_unpack(trained))
        self._partly = {name: set(rows) for name, rows in (partly or {}).items()}
        self._rows: dict[str, int] = {}
        self._waiting: dict[str, int] = {}
        self._got: deque[HandedRow] = deque()
        self._batches: deque[set[HandedRow]] = deque()
        self._packing = False

    @property
    def waiting(self) -> int:
        """Return the number of groups with rows still to be got by the trainer."""
        return len(self._waiting)

    def hand(self, name: str, rows: int) -> list[int]:
        """Take in a group of so many rows; return the numbers of those still to be trained on."""
        done = self._partly.setdefault(name, set())
        left = [row for row in range(rows) if row not in done]
        self._rows[name] = rows
        if left:
            self._waiting[name] = len(left)
        return left

    def get(self, one: HandedRow) -> None:
        """Note a row as got by the trainer."""
        self._packing = False
        self._got.append(one)
        self._waiting[one.group] -= 1
        if not self._waiting[one.group]:
            del self._waiting[one.group]

    def pack(self, one: HandedRow) -> None:
        """Note a row as packed into the trainer's present batch; the next batch begins after a `get`."""
        if not self._packing:
            self._batches.append(set())
            self._packing = True
        self._batches[-1].add(one)

    def step(self, batches: int) -> list[HandedRow]:
        """Note a step of the trainer on its next so many batches; return their rows, in order.

        Raises LookupError if it packed fewer."""
        if len(self._batches) < batches:
            raise LookupError(f"a step was taken on {batches} batches, and {len(self._batches)} were seen to be packed")
        trained = []
        for _ in range(batches):
            batch = self._batches.popleft()
            while batch:
                one = self._got.popleft()
                if one in batch:
                    batch.discard(one)
                    trained.append(one)
                self._settle(one)
        return trained

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, for `Ledger(**state)`. Another thread may `hand` groups meanwhile."""
        partly = {name: sorted(rows) for name, rows in self._partly.copy().items() if rows}
        return {"trained": _pack(self.trained), "partly": partly}

    def _settle(self, one: HandedRow) -> None:
        done = self._partly[one.group]
        done.add(one.row)
        if len(done) == self._rows[one.group]:
            self.trained.add(one.group)
            del self._partly[one.group], self._rows[one.group]


def _pack(names: Iterable[str]) -> list[str | list[str]]:
    """Return names in little room, for JSON. Those that differ in a number at their end alone, as a run's do, become
    their beginning and a bit for each number, in hexadecimal."""
    plain: list[str] = []
    ending = defaultdict[str, list[int]](list)
    for name in names:
        digits = name[name.rfind("-") + 1 :]
        if digits.isdecimal() and len(digits) < 19 and digits == str(int(digits)):
            ending[name.removesuffix(digits)].append(int(digits))
        else:
            plain.append(name)
    packed: list[list[str]] = []
    for begin, numbers in ending.items():
        if max(numbers) > 100 * (len(numbers) - 1):  # too few of them: their names are shorter
            plain += [f"{begin}{number}" for number in numbers]
            continue
        bits = bytearray(max(numbers) // 8 + 1)
        for number in numbers:
            bits[number // 8] |= 1 << number % 8
        packed.append([begin, bits.hex()])
    return [*sorted(plain), *sorted(packed)]


def _unpack(packed: Iterable[str | Sequence[str]]) -> Iterator[str]:
    for one in packed:
        if isinstance(one, str):
            yield one
            continue
        begin, bits = one
        for place, byte in enumerate(bytes.fromhex(bits)):
            yield from (f"{begin}{8 * place + bit}" for bit in range(8) if byte >> bit & 1)
