"""Connections into a sandbox: to a server inside, as streams of asyncio's."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from sandboxes.base import SandboxError, Streams
from sandboxes.docker.executor.connection import Connection
from sandboxes.docker.executor.doors import serve_door
from sandboxes.docker.executor.tunnel import Tunnel
from sandboxes.shielding import closing

_FLUSH_S = 30.0
"""How long a server may take over the last of its data, after the connection was closed here."""
_AGAIN_S = 0.05


@asynccontextmanager
async def streams_to(connection: Connection, to: bytes, name: str, timeout: float) -> AsyncIterator[Streams]:
    """Connect to a server inside. to: as the executor's frame J has it; name: for messages. Raises OSError,
    SandboxError."""
    opened: asyncio.Future[Streams] = asyncio.get_running_loop().create_future()

    def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not opened.done():
            opened.set_result((reader, writer))

    async def serve(tunnel: Tunnel) -> None:
        await serve_door(tunnel, lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader(), keep))
        async with asyncio.timeout(_FLUSH_S):
            await tunnel.drain()

    try:
        async with asyncio.timeout(timeout):
            serving = await _open_tunnel(connection, to, serve)
            either: set[asyncio.Future[Any]] = {opened, serving}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not opened.done():
            raise ConnectionResetError(errno.ECONNRESET, "the server has hung up")
        reader, writer = opened.result()
    except SandboxError:
        raise
    except TimeoutError as error:
        raise TimeoutError(f"nobody accepted a connection to {name} within {timeout:g} s") from error
    except OSError as error:
        raise type(error)(error.errno, error.strerror, name) from error
    with closing(writer):
        yield reader, writer


async def _open_tunnel(
    connection: Connection, to: bytes, serve: Callable[[Tunnel], Awaitable[None]]
) -> asyncio.Task[None]:
    """Open it; waits while the queue of a socket is full."""
    while True:
        try:
            return await connection.open_tunnel(to, serve)
        except BlockingIOError:
            await asyncio.sleep(_AGAIN_S)
