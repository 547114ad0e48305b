"""Connections out of a sandbox without a network, passed on by its executor; `executor/tunnel.c` is the other end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections.abc import Awaitable, Callable

from sandboxes.base import SandboxError

logger = logging.getLogger(__name__)

TUNNEL = 1 << 31
"""In the number of a frame that belongs to a tunnel."""
_WINDOW = 128 << 10
"""Bytes that each side may be ahead of what the other has passed on."""
_HEAD = 32 << 10
_PIECE = 64 << 10

Send = Callable[[int, bytes, bytes], Awaitable[None]]
"""Number, kind and payload of a frame to the executor. Raises SandboxError."""


class Tunnel:
    """One connection; what its client in the sandbox sends is read here, and the other way round.

    reset: whether its client has broken it off."""

    def __init__(self, number: int, send: Send) -> None:
        self.reset = False
        self._number = number
        self._send = send
        self._incoming = asyncio.StreamReader(limit=_HEAD)
        self._taken = 0
        self._credit = _WINDOW
        self._more = asyncio.Event()

    async def read_until(self, end: bytes) -> bytes:
        """Return what comes up to `end`. Raises asyncio.IncompleteReadError, or LimitOverrunError after 32 KB."""
        data = await self._incoming.readuntil(end)
        self._taken += len(data)
        return data

    async def read(self) -> bytes:
        """Return some bytes, none at the end. Asking again says that the last ones have been dealt with."""
        if self._taken:
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

    @property
    def passed_on(self) -> bool:
        """Return whether the client's end has all that was written."""
        return self._credit == _WINDOW

    def heard(self, kind: bytes, payload: bytes) -> None:
        if kind == b"Y":
            self.reset = True
        elif kind == b"O":
            self._incoming.feed_data(payload)
        elif kind == b"Z":
            self._incoming.feed_eof()
        elif kind == b"G":
            self._credit += struct.unpack("<I", payload)[0]
            self._more.set()


Serve = Callable[[Tunnel, int], Awaitable[None]]
"""What is done with a connection to a port of the sandbox's loopback; its end closes the connection."""


class Tunnels:
    """All tunnels of one sandbox."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._open: dict[int, tuple[Tunnel, asyncio.Task[None]]] = {}

    def heard(self, number: int, kind: bytes, payload: bytes, send: Send) -> None:
        """Take a frame of the executor's."""
        if kind == b"A":
            tunnel = Tunnel(number, send)
            serving = self._run(number, tunnel, struct.unpack("<I", payload)[0], send)
            self._open[number] = tunnel, asyncio.create_task(serving, name="sandbox tunnel")
        elif number in self._open:
            tunnel, task = self._open[number]
            tunnel.heard(kind, payload)
            if kind == b"Y":
                task.cancel()

    def end(self) -> None:
        for _, task in self._open.values():
            task.cancel()

    async def _run(self, number: int, tunnel: Tunnel, port: int, send: Send) -> None:
        try:
            await self._serve(tunnel, port)
        except (SandboxError, OSError, EOFError, asyncio.LimitOverrunError) as error:
            logger.debug("a connection out of a sandbox ended: %r", error)
        finally:
            del self._open[number]
            with contextlib.suppress(SandboxError):
                await send(number, b"K", b"")
