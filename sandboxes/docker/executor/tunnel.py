"""Connections out of and into a sandbox without a network, passed on by its executor; `executor/tunnel.c` is the other
end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import struct
from collections.abc import Awaitable, Callable
from functools import partial

from sandboxes.base import SandboxDied, SandboxError
from sandboxes.shielding import finish

logger = logging.getLogger(__name__)

TUNNEL = 1 << 31
"""The bit for tunnels in the number of a frame."""
_OPENED_HERE = 1 << 30
"""The bit for tunnels opened here."""
_AT_ONCE = 64
"""Connections into a sandbox."""
_WINDOW = 128 << 10
"""Bytes by which each side may be ahead of the other's progress."""
_HEAD = 32 << 10
_PIECE = 64 << 10

Send = Callable[[int, bytes, bytes], Awaitable[None]]
"""Number, kind and payload of a frame to the executor. Raises SandboxError."""


class Tunnel:
    """One connection; the data of its client in the sandbox is read here, and the other way round.

    reset: whether its client has broken it off."""

    def __init__(self, number: int, send: Send) -> None:
        self.reset = False
        self._number = number
        self._send = send
        self._incoming = asyncio.StreamReader(limit=_HEAD)
        self._taken = self._unread = 0
        self._credit = _WINDOW
        self._more = asyncio.Event()

    async def read_until(self, end: bytes) -> bytes:
        """Return the data up to `end`. Raises asyncio.IncompleteReadError, or LimitOverrunError after 32 KB."""
        data = await self._incoming.readuntil(end)
        self._taken += len(data)
        return data

    async def read(self) -> bytes:
        """Return some bytes, none at the end. Another call reports the last ones as dealt with."""
        if self._taken:
            self._unread -= self._taken
            await self._send(self._number, b"G", struct.pack("<I", self._taken))
        data = await self._incoming.read(_PIECE)
        self._taken = len(data)
        return data

    async def write(self, data: bytes) -> None:
        """Pass data on; waits while the client does not take it."""
        while data:
            self._more.clear()
            if not self._credit:
                await self._more.wait()
            piece, data = data[: min(self._credit, _PIECE)], data[min(self._credit, _PIECE) :]
            self._credit -= len(piece)
            await self._send(self._number, b"D", piece)

    async def write_eof(self) -> None:
        """Report the end of the data to the client."""
        await self._send(self._number, b"Z", b"")

    async def drain(self) -> None:
        """Wait until the client's end has all written data."""
        while not self.is_drained:
            self._more.clear()
            await self._more.wait()

    @property
    def is_drained(self) -> bool:
        """Return whether the client's end has all written data."""
        return self._credit == _WINDOW

    def receive(self, kind: bytes, payload: bytes) -> None:
        if kind == b"Y":
            self.reset = True
        elif kind == b"O" and self._unread <= _WINDOW:  # an executor of ours never goes beyond it
            self._unread += len(payload)
            self._incoming.feed_data(payload)
        elif kind == b"Z":
            self._incoming.feed_eof()
        elif kind == b"G":
            self._credit += struct.unpack("<I", payload)[0]
            self._more.set()


Serve = Callable[[Tunnel, int], Awaitable[None]]
"""Serves a connection to a port of the sandbox's loopback; its end closes the connection."""

Opened = int | asyncio.Task[None]
"""The number of an error, or the task of the connection."""


class Tunnels:
    """All tunnels of one sandbox."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._open: dict[int, tuple[Tunnel, asyncio.Task[None]]] = {}
        self._opening: dict[int, tuple[asyncio.Future[Opened], Callable[[], asyncio.Task[None]]]] = {}
        self._numbers = itertools.count()
        self._free = asyncio.Semaphore(_AT_ONCE)
        self._life = 0

    def receive(self, number: int, kind: bytes, payload: bytes, send: Send) -> None:
        """Take a frame of the executor's."""
        if kind == b"A":
            (port,) = struct.unpack("<I", payload)
            tunnel = Tunnel(number, send)
            self._begin(number, tunnel, partial(self._serve, tunnel, port), send)
        elif kind == b"F" and number in self._opening:
            opened, begin = self._opening.pop(number)
            (error,) = struct.unpack("<I", payload)
            opened.set_result(error or begin())
        elif number in self._open:
            tunnel, task = self._open[number]
            tunnel.receive(kind, payload)
            if kind == b"Y":
                task.cancel()

    async def open(self, payload: bytes, send: Send, serve: Callable[[Tunnel], Awaitable[None]]) -> asyncio.Task[None]:
        """Have a connection made inside, and serve it. payload: its destination, in the form of the executor's frame
        J. Waits at the limit of connections. Returns the serving task. Raises OSError, SandboxError."""
        life = self._life
        await self._free.acquire()
        if life != self._life:
            self._free.release()
            raise SandboxDied("the sandbox has ended, or was reset, while a connection into it waited for its turn")
        number = TUNNEL | _OPENED_HERE | next(self._numbers) % _OPENED_HERE
        tunnel = Tunnel(number, send)
        opened: asyncio.Future[Opened] = asyncio.get_running_loop().create_future()
        self._opening[number] = opened, partial(self._begin, number, tunnel, partial(serve, tunnel), send)
        async with contextlib.AsyncExitStack() as opening:
            opening.push_async_callback(self._give_up, number, opened, send)
            await send(number, b"J", payload)
            result = await asyncio.shield(opened)
            opening.pop_all()
        if isinstance(result, int):
            self._free.release()
            raise OSError(result, os.strerror(result))
        return result

    def end(self, error: Exception) -> None:
        """End them all. error: raised by those still being opened."""
        self._life += 1
        for _, task in self._open.values():
            task.cancel()
        for opened, _ in self._opening.values():
            if not opened.done():
                opened.set_exception(error)

    def _begin(
        self, number: int, tunnel: Tunnel, serve: Callable[[], Awaitable[None]], send: Send
    ) -> asyncio.Task[None]:
        task = asyncio.create_task(self._run(number, serve, send), name="sandbox tunnel")
        self._open[number] = tunnel, task
        task.add_done_callback(lambda _: self._remove(number))
        return task

    def _remove(self, number: int) -> None:
        del self._open[number]
        if number & _OPENED_HERE:
            self._free.release()

    async def _run(self, number: int, serve: Callable[[], Awaitable[None]], send: Send) -> None:
        try:
            await serve()
        except (SandboxError, OSError, EOFError, asyncio.LimitOverrunError) as error:
            logger.debug("a connection of a sandbox ended: %r", error)
        finally:
            await self._close(number, send)

    async def _give_up(self, number: int, opened: asyncio.Future[Opened], send: Send) -> None:
        """Leave nothing of a connection that could not be opened."""
        if self._opening.pop(number, None) is not None:
            opened.cancel()
            self._free.release()
            await finish(self._close(number, send))
        elif number in self._open:
            self._open[number][1].cancel()

    async def _close(self, number: int, send: Send) -> None:
        with contextlib.suppress(SandboxError):
            await send(number, b"K", b"")
