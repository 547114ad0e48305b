"""The two ways to a container's executor: the engine's attached stream, and a socket past the engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Protocol, Self

import aiodocker.stream

logger = logging.getLogger(__name__)

_CHUNK = 1 << 16


class Stream(Protocol):
    """Bytes both ways. Its methods raise an OSError, or one of aiohttp's or aiodocker's errors, when it is broken."""

    async def read(self) -> bytes:
        """What has come, at least a byte; nothing at the end."""
        ...

    async def write(self, data: bytes) -> None: ...

    async def close(self) -> None: ...


class AttachedStream:
    """By way of the engine, wherever that is."""

    def __init__(self, stream: aiodocker.stream.Stream) -> None:
        self._stream = stream

    async def read(self) -> bytes:
        while (message := await self._stream.read_out()) is not None:
            if message.stream == 1 and message.data:
                return message.data
            logger.debug("an executor: %r", message.data)
        return b""

    async def write(self, data: bytes) -> None:
        await self._stream.write_in(data)

    async def close(self) -> None:
        await self._stream.close()


class SocketStream:
    """A connection to a unix socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, path: str) -> Self:
        """Raises OSError."""
        return cls(*await asyncio.open_unix_connection(path, limit=_CHUNK))

    async def read(self) -> bytes:
        return await self._reader.read(_CHUNK)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
