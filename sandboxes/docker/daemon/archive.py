"""Read a tree from the Docker daemon's archive while it comes."""

from __future__ import annotations

import asyncio
import io
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import aiohttp

from sandboxes.shielding import finish
from sandboxes.trees import TreeReader, read_archive

_MOST = 2**33
"""Bytes of the largest tree that is read: a program inside can make one that looks endless."""
_READERS = ThreadPoolExecutor(64, "trees")


async def read_body(response: aiohttp.ClientResponse, reader: TreeReader, target: str) -> Exception | None:
    """Give the archive in a response to a reader, in a thread. Returns what the archive or the reader is at fault for.

    target: the tree's path, for messages. Raises the connection's failures."""
    loop = asyncio.get_running_loop()
    pieces = _ResponseReader(response.content, loop, target)
    reading = loop.run_in_executor(_READERS, _read_pieces, pieces, reader)
    try:
        return await asyncio.shield(reading)
    finally:
        response.close()  # ends the thread's waiting, too
        with suppress(Exception):
            await finish(reading)


class _ResponseReader(io.RawIOBase):
    """The body of a response, as a file for another thread."""

    def __init__(self, content: aiohttp.StreamReader, loop: asyncio.AbstractEventLoop, target: str) -> None:
        self._content, self._loop, self._target = content, loop, target
        self._left = _MOST
        self.failure: BaseException | None = None
        """Of the connection."""

    def read(self, size: int = -1, /) -> bytes:
        receiving = asyncio.run_coroutine_threadsafe(self._receive(size), self._loop)
        self.failure = self.failure or receiving.exception()
        piece = receiving.result()
        self._left -= len(piece)
        if self._left < 0:
            raise ValueError(f"{self._target} holds more than {_MOST} bytes")
        return piece

    async def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size and (piece := await self._content.read(size - len(data))):
            data += piece
        return bytes(data)


def _read_pieces(pieces: _ResponseReader, reader: TreeReader) -> Exception | None:
    """Give an archive to a reader; return what either is at fault for. Raises the connection's failures."""
    try:
        read_archive(pieces, reader, "r|")
    except Exception as error:
        if pieces.failure is not None:
            raise pieces.failure from error
        return error
    return None
