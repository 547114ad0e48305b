"""Connections to servers of this machine, by port or by a socket's path."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from sandboxes.base import Streams
from sandboxes.shielding import closing, on_failure

_AGAIN_S = 0.05


@asynccontextmanager
async def streams_to(target: int | Path, timeout: float) -> AsyncIterator[Streams]:
    """Connect to a port of loopback, or to a socket's path. Raises OSError."""
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await (_to_port(target) if isinstance(target, int) else _to_path(target))
    except TimeoutError as error:
        raise TimeoutError(f"nobody accepted a connection to {target} within {timeout:g} s") from error
    with closing(writer):
        yield reader, writer


async def _to_port(port: int) -> Streams:
    try:
        return await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return await asyncio.open_connection("::1", port)


async def _to_path(path: Path) -> Streams:
    folder = os.open(path.parent, os.O_PATH | os.O_CLOEXEC)  # a socket's path has to be short
    try:
        while True:
            connection = socket.socket(socket.AF_UNIX)
            connection.setblocking(False)
            try:
                with on_failure(partial(_close, connection)):
                    connection.connect(f"/proc/self/fd/{folder}/{path.name}")
                    return await asyncio.open_unix_connection(sock=connection)
            except BlockingIOError:  # its queue is full
                await asyncio.sleep(_AGAIN_S)
    finally:
        os.close(folder)


def _close(connection: socket.socket, _: BaseException) -> None:
    connection.close()
