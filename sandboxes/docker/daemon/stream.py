"""The Docker daemon's attached stream to a container's executor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import aiodocker.stream
import aiohttp

from sandboxes.docker.executor.streams import TAKEN_S, Stream

logger = logging.getLogger(__name__)


class AttachedStream(Stream):
    """A stream by way of the Docker daemon, near or far."""

    def __init__(self, stream: aiodocker.stream.Stream) -> None:
        self._stream = stream

    async def read(self) -> bytes:
        """Return the received bytes, at least one; nothing at the end."""
        with _stream_errors():
            while (message := await self._stream.read_out()) is not None:
                if message.stream == 1 and message.data:
                    return message.data
                logger.debug("an executor: %r", message.data)
        return b""

    async def write(self, data: bytes) -> None:
        with _stream_errors():
            async with asyncio.timeout(TAKEN_S):
                await self._stream.write_in(data)

    async def close(self) -> None:
        answer = self._stream._resp
        if answer is not None and answer.connection is not None and answer.connection.transport is not None:
            answer.connection.transport.abort()  # to close it would wait until everything is sent
        with _stream_errors():
            await self._stream.close()


@contextmanager
def _stream_errors() -> Iterator[None]:
    """Turn the client's exceptions into an OSError, as every stream raises one."""
    try:
        yield
    except (aiohttp.ClientError, aiodocker.DockerError, RuntimeError) as error:
        if isinstance(error, OSError):
            raise
        raise ConnectionError(str(error) or type(error).__name__) from error
