"""Keep which rows a trainer in this process has trained on, so that its checkpoint can say so."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import Any


class Ledger:
    """The rows of the groups that were handed to a trainer, from there to the weights.

    handed ──► got ──► packed into a batch ──► trained when the step of that batch is done

    A trainer gets rows ahead of the step that it takes, and may drop some, such as old ones. It keeps their order, so
    that one which it got before the last row of a batch, and which is in none, was dropped. A group is done when each
    of its rows was trained on or dropped.

    trained: names of groups that are done. partly: of others, the numbers of the rows that are.
    """

    def __init__(self, trained: Collection[str] = (), partly: Mapping[str, Collection[int]] | None = None) -> None:
        self.trained = set(trained)
        self._partly = {name: set(rows) for name, rows in (partly or {}).items()}
        self._rows: dict[str, int] = {}
        self._waiting: dict[str, int] = {}
        self._got: deque[tuple[str, int]] = deque()
        self._batches: deque[set[tuple[str, int]]] = deque()
        self._packing = False

    @property
    def waiting(self) -> int:
        """Return how many groups have rows that the trainer has not got yet."""
        return len(self._waiting)

    def hand(self, name: str, rows: int) -> list[int]:
        """Take in a group of so many rows; return the numbers of those that are still to be trained on."""
        done = self._partly.setdefault(name, set())
        left = [row for row in range(rows) if row not in done]
        self._rows[name] = rows
        if left:
            self._waiting[name] = len(left)
        return left

    def get(self, name: str, row: int) -> None:
        """Note that the trainer got a row."""
        self._packing = False
        self._got.append((name, row))
        self._waiting[name] -= 1
        if not self._waiting[name]:
            del self._waiting[name]

    def pack(self, name: str, row: int) -> None:
        """Note that a row is in the batch that the trainer packs now; the next one begins after a `get`."""
        if not self._packing:
            self._batches.append(set())
            self._packing = True
        self._batches[-1].add((name, row))

    def step(self, batches: int) -> list[tuple[str, int]]:
        """Note that the trainer took a step on its next so many batches; return their rows, in order.

        Raises LookupError where it packed fewer."""
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
                self._settle(*one)
        return trained

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint has to say, as `Ledger(**state)` reads it."""
        partly = {name: sorted(rows) for name, rows in self._partly.items() if rows}
        return {"trained": sorted(self.trained), "partly": partly}

    def _settle(self, name: str, row: int) -> None:
        done = self._partly[name]
        done.add(row)
        if len(done) == self._rows[name]:
            self.trained.add(name)
            del self._partly[name], self._rows[name]
