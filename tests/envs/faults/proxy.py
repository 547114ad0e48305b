"""A loopback proxy between a client and an HTTP server, which spoils connections as a test says."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import Awaitable, Callable

FAULTS = ("refuse", "hang", "reset", "truncate", "garbage", "lost answer", "slow", "wrong ids")


class Proxy:
    """Passes requests on, each on a connection of its own. Use it as `async with`.

    plan: what befalls the next requests, in order: one of FAULTS, a status such as 503, or an answer's body; None
    passes one on. A "lost answer" reaches the server, whose reply is dropped; those of "drip" and "flood" have no end.
    always: what befalls all others. fails: which requests are always answered with 500. after: what is done when an
    answer was lost.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.removeprefix("http://").partition("/")[0].partition(":")
        self._target = (host, int(port))
        self.plan: deque[str | int | bytes | None] = deque()
        self.always: str | int | bytes | None = None
        self.fails: Callable[[bytes], bool] | None = None
        self.after: Callable[[], Awaitable[None]] | None = None
        self.requests = 0
        self.only = b""
        """Only requests whose first line holds this are spoilt."""

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._open: set[asyncio.Task[None]] = set()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._one(reader, writer)
        finally:
            self._open.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if line and not line.lower().startswith(b"connection:")]
        length = next((int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length")), 0)
        body = await reader.readexactly(length)
        fault = self._fault(lines[0], body)
        if await self._answer_instead(fault, writer):
            return
        request = b"\r\n".join([*lines, b"Connection: close", b"", b""]) + body
        answer = await self._ask(request)
        if fault in ("slow", "stall"):
            await asyncio.sleep(1.5 if fault == "slow" else 3.0)
        if fault == "lost answer":
            if self.after is not None:
                await self.after()
            return
        if fault == "reset":
            writer.write(answer[: len(answer) // 2])
            await writer.drain()
            writer.transport.abort()
            return
        if fault == "truncate":
            answer = answer[: len(answer) - 5]
        if fault == "wrong ids":
            answer = re.sub(rb'("prompt_token_ids":\[)(\d)', rb"\g<1>7", answer)  # as many bytes as before
        if fault == "garbage":
            answer = b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: close\r\n\r\n{"choices": '
        writer.write(answer)
        await writer.drain()

    def _fault(self, first: bytes, body: bytes) -> str | int | bytes | None:
        if self.only not in first:
            return None
        self.requests += 1
        fault = self.plan.popleft() if self.plan else self.always
        return 500 if self.fails is not None and self.fails(body) else fault

    @staticmethod
    async def _answer_instead(fault: str | int | bytes | None, writer: asyncio.StreamWriter) -> bool:
        """Answer without asking the server, where the fault is of that kind."""
        if fault == "hang":
            await asyncio.sleep(3600)
        elif isinstance(fault, int):
            writer.write(b"HTTP/1.1 %d Planned\r\nContent-Length: 7\r\nConnection: close\r\n\r\nplanned" % fault)
        elif isinstance(fault, bytes):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(fault) + fault)
        elif fault in ("drip", "flood"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
            while True:
                writer.write(b" " if fault == "drip" else b" " * 100_000)
                await writer.drain()
                await asyncio.sleep(0.1 if fault == "drip" else 0.0)
        elif fault != "refuse":
            return False
        await writer.drain()
        return True

    async def _ask(self, request: bytes) -> bytes:
        try:
            reader, writer = await asyncio.open_connection(*self._target)
        except ConnectionRefusedError:
            return b""  # as if it were the server itself
        writer.write(request)
        try:
            return await reader.read()
        finally:
            writer.close()
