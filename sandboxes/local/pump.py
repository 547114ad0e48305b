"""Reads a pipe of commands' output, so nobody at its other end is ever held up."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios
from collections.abc import Callable

_GRACE_S = 0.1
"""How long a finished command's output may stay silent while a background child holds it open."""
_DRAINED_S = 1.0


class Pump:
    """Gives the output to `take`, and drops it without one."""

    def __init__(self, fd: int, take: Callable[[bytes], None] | None = None) -> None:
        self._fd = fd
        self.take = take
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._last = 0.0
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read, 1 << 16)

    def _read(self, size: int) -> None:
        try:
            data = os.read(self._fd, size)
        except BlockingIOError:
            return
        self._last = self._loop.time()
        if not data:
            self.close()
        elif self.take is not None:
            self.take(data)

    def read_available(self) -> None:
        """Take exactly the present contents of the pipe: a background process may go on writing."""
        if not self._ended.is_set():
            (size,) = struct.unpack("i", fcntl.ioctl(self._fd, termios.FIONREAD, b"\0" * 4))
            if size:
                self._read(size)

    async def wait_drained(self) -> None:
        """Wait for the end of the stream, or for silence when a background child holds it open."""
        self._last = self._loop.time()
        deadline = self._last + _DRAINED_S
        while not self._ended.is_set() and self._loop.time() < min(self._last + _GRACE_S, deadline):
            try:
                await asyncio.wait_for(self._ended.wait(), _GRACE_S)
            except TimeoutError:
                continue

    @property
    def open(self) -> bool:
        """Return whether anyone can still write."""
        return not self._ended.is_set()

    def close(self) -> None:
        if not self._ended.is_set():
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._ended.set()
