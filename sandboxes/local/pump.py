"""Reads a pipe of commands' output, so nobody at its other end is ever held up, but by a reader that is behind."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios
from collections.abc import Callable
from contextlib import suppress

_GRACE_S, _LIMIT_S = 0.1, 1.0
"""How long an ended command's output may be silent, or go on, while a background child holds it open."""
_PIECE = 64 << 10


class Pump:
    """Gives the output of a pipe or terminal to `take`, and drops it without one. credit: bytes that may come until
    `allow` lets more; None for any number."""

    def __init__(self, fd: int, take: Callable[[bytes], None] | None = None, credit: int | None = None) -> None:
        self._fd = fd
        self.take = take
        self._credit = credit
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._last = 0.0
        self._owed = 0
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read)

    def allow(self, size: int | None) -> None:
        """Let as many more bytes come; None for any number."""
        self._credit = None if size is None or self._credit is None else self._credit + size
        if self.open:
            self._loop.add_reader(self._fd, self._read)

    def _read(self, size: int = _PIECE) -> None:
        if self.take is not None and self._credit is not None:
            size = min(size, self._credit)
            if not size:
                self._loop.remove_reader(self._fd)
                return
        try:
            data = os.read(self._fd, size)
        except BlockingIOError:
            return
        except OSError:  # of a terminal that nobody has open any more
            data = b""
        self._last = self._loop.time()
        if not data:
            self.close()
        elif self.take is not None:
            self._credit = None if self._credit is None else self._credit - len(data)
            self._owed -= len(data)
            self.take(data)

    def read_available(self) -> None:
        """Take exactly the present contents of the pipe: a background process may go on writing."""
        if size := self._available():
            self._read(size)

    def _available(self) -> int:
        return int(struct.unpack("i", fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4)))[0]) if self.open else 0

    async def wait_drained(self) -> None:
        """Wait for the end of the stream, or for silence when a background child holds it open. Output that is there
        now is waited for, however long its reading takes."""
        self._last = began = self._loop.time()
        self._owed = self._available()
        while self.open and (self._owed > 0 or self._loop.time() < min(self._last + _GRACE_S, began + _LIMIT_S)):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), _GRACE_S)

    @property
    def open(self) -> bool:
        """Return whether anyone can still write."""
        return not self._ended.is_set()

    def close(self) -> None:
        if self.open:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._ended.set()
