"""Output of a command, kept in a fixed amount of memory: the first half and the last half."""

from __future__ import annotations

from collections.abc import Sequence

_CHUNK = 65536


def dropped_line(dropped: int) -> bytes:
    return f"\n[... {dropped} bytes dropped ...]\n".encode()


class BoundedOutput:
    """Collects bytes, and keeps the first `limit // 2` and the last `limit - limit // 2` of them."""

    def __init__(self, limit: int) -> None:
        if limit < 0:
            raise ValueError(f"max_output must not be negative, got {limit}")
        self._head_size = limit // 2
        self._tail_size = limit - self._head_size
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def add(self, data: bytes, dropped: int = 0) -> None:
        """Add new output. dropped: the number of bytes missing in its middle, if it was kept within the same limit."""
        self._dropped += dropped
        room = self._head_size - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        # Trimmed only when well over the limit, so that a flood of small writes costs no copy each.
        if len(self._tail) > self._tail_size + _CHUNK:
            self._trim()

    def _trim(self) -> None:
        excess = len(self._tail) - self._tail_size
        if excess > 0:
            del self._tail[:excess]
            self._dropped += excess

    def result(self) -> tuple[bytes, bool]:
        """Return the bytes, with a line in the middle that counts the dropped ones, and whether any were dropped."""
        self._trim()
        if not self._dropped:
            return bytes(self._head + self._tail), False
        return bytes(self._head) + dropped_line(self._dropped) + bytes(self._tail), True


class CollectedOutput:
    """A command's output: both streams together, and each by itself if they are kept apart (`split`)."""

    def __init__(self, limit: int, *, split: bool) -> None:
        self._together = BoundedOutput(limit)
        self._apart = [BoundedOutput(limit) for _ in range(2)] if split else []

    def add(self, data: bytes, stream: int = 0) -> None:
        """Add new output. stream: 0 for stdout, 1 for stderr."""
        self._together.add(data)
        if self._apart:
            self._apart[stream].add(data)

    def add_rest(self, rest: Sequence[tuple[bytes, int]]) -> None:
        """Add output that was kept elsewhere within the same limit, and its number of dropped bytes: of both streams
        together, then of each if they are apart."""
        for output, (data, dropped) in zip([self._together, *self._apart], rest, strict=False):
            output.add(data, dropped)

    def result(self) -> tuple[bytes, bool, bytes | None, bytes | None]:
        """Return both together, and whether any bytes were dropped; stdout and stderr if they are apart."""
        raw, truncated = self._together.result()
        stdout, stderr = [output.result()[0] for output in self._apart] or (None, None)
        return raw, truncated, stdout, stderr
