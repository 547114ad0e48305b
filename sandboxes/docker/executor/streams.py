"""Ways to a container's executor: any stream, and a socket of this host."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol, Self, cast

from sandboxes.base import DaemonUnavailable, SandboxError

_CHUNK = 1 << 16
TAKEN_S = 10.0
"""How long the other side may take over its data, a frame at a time."""


class Stream(Protocol):
    """Bytes both ways. Its methods raise an OSError when it is broken."""

    async def read(self) -> bytes:
        """Return the received bytes, at least one; nothing at the end."""
        ...

    async def forward_to(self, take: Callable[[bytes], None]) -> None:
        """Give all received bytes to `take`, until the end."""
        while data := await self.read():
            take(data)

    async def write(self, data: bytes) -> None:
        """Send. Raises TimeoutError when the other side takes nothing for too long."""
        ...

    async def close(self) -> None:
        """Close at once, whatever has not been sent."""
        ...


class ProgramStream(Stream, Protocol):
    """Standard input and output of a program. error_text: the end of what it wrote to stderr."""

    error_text: str

    @property
    def exit_code(self) -> int | None:
        """Return the program's, after the end of its output; None if nobody reported it. Raises SandboxError if it did
        not run."""
        ...

    async def read_all(self, doing: str, most: int) -> bytes:
        """Return the output up to the end. Raises SandboxError if the program fails, ValueError above `most` bytes."""
        out = bytearray()
        while data := await self.read():
            out += data
            if len(out) > most:
                raise ValueError(f"{doing}: more than {most} bytes")
        if (code := self.exit_code) is None:
            raise DaemonUnavailable(f"{doing} broke off without an exit code")
        if code:
            raise SandboxError(f"{doing} ended with {code}: {self.error_text[:500]}")
        return bytes(out)


class SocketStream(asyncio.BufferedProtocol):
    """A connection to a unix socket.

    Received bytes are passed on within the event loop's own callback: to wake a task for them would cost as much as all
    the rest of a short command."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._buffer = bytearray(_CHUNK)
        self._early = bytearray()
        self._take: Callable[[bytes], None] = self._keep
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._news = asyncio.Event()
        self._flows = asyncio.Event()
        self._flows.set()

    def _keep(self, data: bytes) -> None:
        self._early += data
        self._news.set()

    @classmethod
    async def open(cls, path: str) -> Self:
        """Connect to the socket at `path`. Raises OSError."""
        return (await asyncio.get_running_loop().create_unix_connection(cls, path))[1]

    @classmethod
    async def from_socket(cls, connected: socket.socket) -> Self:
        """Take a connected socket."""
        return (await asyncio.get_running_loop().create_unix_connection(cls, sock=connected))[1]

    async def read(self) -> bytes:
        """Return the first received bytes, at least one; nothing if it ends before. Not after `forward_to`."""
        await self._news.wait()
        data = bytes(self._early)
        self._early.clear()
        return data

    async def forward_to(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        if self._early:
            take(bytes(self._early))
        await asyncio.shield(self._ended)

    async def write(self, data: bytes) -> None:
        if not self._ended.done():
            self._transport.write(data)
            if not self._flows.is_set():
                await asyncio.wait_for(self._flows.wait(), TAKEN_S)
        if self._ended.done():
            raise ConnectionResetError("the socket is closed")

    async def close(self) -> None:
        self._transport.abort()  # to close it would wait until everything is sent
        await asyncio.shield(self._ended)

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not by its class: other event loops have transports of their own that derive from nothing.
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._take(bytes(memoryview(self._buffer)[:nbytes]))

    def pause_writing(self) -> None:
        self._flows.clear()

    def resume_writing(self) -> None:
        self._flows.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._news.set()
        self._flows.set()
        self._ended.set_result(None)
