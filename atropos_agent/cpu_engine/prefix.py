"""Keep the caches of finished sequences: a prompt with the same start computes less."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from atropos_agent.cpu_engine.llama import SequenceCache

Entry = tuple[Sequence[int], SequenceCache]
"""Token ids and the cache for the first `cache.length` of them."""


class PrefixStore:
    """Caches of finished sequences, the least recently used dropped first.

    max_bytes: of keys and values kept; running sequences are not counted.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self._next = 0
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, ids: Sequence[int], cache: SequenceCache) -> None:
        """Keep a finished sequence, and drop entries that it contains or that no longer fit."""
        ids = tuple(ids[: cache.length])
        covered = [key for key, (old, _) in self._entries.items() if common_prefix(old, ids) == len(old)]
        for key in covered:
            self._drop(key)
        self._entries[self._next] = (ids, cache)
        self._next += 1
        self.nbytes += cache.nbytes
        while self.nbytes > self._max_bytes and self._entries:
            self._drop(next(iter(self._entries)))

    def find_best(self, ids: Sequence[int], running: Iterable[Entry] = ()) -> tuple[int, SequenceCache | None]:
        """Return the longest start of `ids` that is computed already, and the cache with it.

        `running`: sequences still in work, to be looked at too.
        """
        length, found, used = 0, None, None
        for key, (other, cache) in self._entries.items():
            common = common_prefix(other, ids)
            if common > length:
                length, found, used = common, cache, key
        if used is not None:
            self._entries.move_to_end(used)
        for other, cache in running:
            common = min(common_prefix(other, ids), cache.length)
            if common > length:
                length, found = common, cache
        return length, found

    def clear(self) -> None:
        """Forget everything, as new weights require."""
        self._entries.clear()
        self.nbytes = 0

    def _drop(self, key: int) -> None:
        _, cache = self._entries.pop(key)
        self.nbytes -= cache.nbytes


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many leading ids two sequences share."""
    for place, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return place
    return min(len(a), len(b))
