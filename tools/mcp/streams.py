"""The messages of one MCP server: over a program's standard streams in a sandbox, or by HTTP."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from sandboxes.base import OutputStream, Process, Sandbox, SandboxError, Streams
from sandboxes.shielding import stop
from tools.mcp.servers import CallInterruptedError, MCPServer, MCPServerError

_MOST_BYTES = 4 << 20
"""What a server may say until it has answered a request."""
_MESSAGE = 2 << 10
"""Bytes that a message counts for beside its own: to read it costs this process as much."""
_ENDING_S = 2.0
"""How long after the end of its output a program's end may take."""
_POLL_S = 0.05
_SHOWN = 1000
_SIGNALS = 128
_NOT_FOUND = (126, 127)

Messages = tuple[Any, Any]
"""The library's streams: from the server, and to it."""


class Watch:
    """What is known of a server at work. received: bytes since the last request. error_text: the end of its stderr.

    ended: why nothing more comes of it."""

    def __init__(self, server: MCPServer) -> None:
        self.server = server
        self.received = 0
        self.error_text = ""
        self.ended: Exception | None = None

    def end(self, error: Exception) -> None:
        self.ended = self.ended or error

    def count(self, size: int, messages: int = 0) -> None:
        """Count received bytes and messages. Raises CallInterruptedError for too much."""
        self.received += size + messages * _MESSAGE
        if self.received > _MOST_BYTES:
            most = f"{_MOST_BYTES >> 20} MB, or {_MOST_BYTES // _MESSAGE:,} messages,"
            raise CallInterruptedError(self.server, f"said more than {most} without an answer among them")

    def explain_exit(self, exit_code: int | None) -> Exception:
        """Return the error for the end of its program. exit_code: None if only its output ended.

        A signal comes from the sandbox, where the model's commands run: they, or the memory they took, may be why."""
        if exit_code is not None and exit_code > _SIGNALS:
            return CallInterruptedError(self.server, f"was ended by signal {exit_code - _SIGNALS}")
        how = "closed its output" if exit_code is None else f"ended by itself with status {exit_code}"
        detail = f": {self.error_text.strip()}" if self.error_text.strip() else ""
        return MCPServerError(self.server, how + detail, hopeless=exit_code in _NOT_FOUND)


def messages_of(sandbox: Sandbox, watch: Watch) -> AbstractAsyncContextManager[Messages]:
    """Start a server, or connect to it. Raises MCPServerError, SandboxError; its later end is in `watch`."""
    return _connect_stdio(sandbox, watch) if watch.server.transport == "stdio" else _connect_http(sandbox, watch)


@asynccontextmanager
async def _connect_stdio(sandbox: Sandbox, watch: Watch) -> AsyncIterator[Messages]:
    incoming, to_session = anyio.create_memory_object_stream[Any](0), anyio.create_memory_object_stream[Any](0)
    async with sandbox.start(watch.server.command, env=watch.server.env, stdin=True, split=True) as process:
        work = (_receive(process, incoming[0], watch), _send(process, to_session[1], watch))
        tasks = {asyncio.create_task(one) for one in (*work, _collect_tail(process.stderr, watch))}
        try:
            yield incoming[1], to_session[0]
        finally:
            await stop(tasks)
            for stream in (*incoming, *to_session):
                stream.close()


async def _receive(process: Process, session: Any, watch: Watch) -> None:
    """Pass on what a program writes, a message a line, until its end."""
    line = bytearray()
    async with session:
        try:
            while piece := await process.stdout.readline():
                watch.count(len(piece), messages=1)
                line += piece
                if piece.endswith(b"\n"):
                    await session.send(_message(bytes(line)))
                    line.clear()
            watch.end(watch.explain_exit(await _exit_code(process)))
        except (CallInterruptedError, SandboxError) as error:
            watch.end(error)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the session is over


async def _send(process: Process, session: Any, watch: Watch) -> None:
    async with session:
        try:
            async for message in session:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.write(text.encode() + b"\n")
        except SandboxError as error:
            watch.end(error)
        except OSError:
            pass  # the program has ended: its output tells


async def _collect_tail(output: OutputStream, watch: Watch) -> None:
    """Keep the end of a program's errors."""
    with suppress(SandboxError):
        async for piece in output:
            watch.error_text = (watch.error_text + piece.decode(errors="replace"))[-_SHOWN:]


async def _exit_code(process: Process) -> int | None:
    """Return how a program ended that has closed its output; None if it has not. Raises SandboxError."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_ENDING_S):
            await process.wait()
    return process.exit_code


def _message(line: bytes) -> SessionMessage | Exception:
    """Return a message; what is none is passed on as an error, which the session leaves out."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


@asynccontextmanager
async def _connect_http(sandbox: Sandbox, watch: Watch) -> AsyncIterator[Messages]:
    server = watch.server
    async with AsyncExitStack() as stack:
        if server.command:
            process = await stack.enter_async_context(sandbox.start(server.command, env=server.env))
            following = asyncio.create_task(_watch_program(process, watch))
            stack.push_async_callback(stop, {following})
        socket_path = await stack.enter_async_context(_open_socket(sandbox, watch)) if server.inside else None

        def client(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
            return httpx2.AsyncClient(
                transport=_WatchedTransport(watch, socket_path),
                headers={"accept-encoding": "identity", **server.headers, **(headers or {})},
                timeout=httpx2.Timeout(30.0, read=None),
                trust_env=False,
            )

        if server.transport == "sse":
            opening = sse_client(server.url, httpx_client_factory=client)
        else:
            opening = streamable_http_client(
                server.url, http_client=await stack.enter_async_context(client()), terminate_on_close=False
            )
        yield await stack.enter_async_context(opening)


async def _watch_program(process: Process, watch: Watch) -> None:
    await _collect_tail(process.stdout, watch)
    try:
        watch.end(watch.explain_exit(await _exit_code(process)))
    except SandboxError as error:
        watch.end(error)


class _WatchedTransport(httpx2.AsyncHTTPTransport):
    """Requests with counted answers. A server that can't be reached, or fails, has ended."""

    def __init__(self, watch: Watch, socket_path: str | None) -> None:
        super().__init__(uds=socket_path)
        self._watch = watch

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await super().handle_async_request(request)
        except httpx2.TransportError as error:
            self._watch.end(MCPServerError(self._watch.server, f"can't be reached: {error or type(error).__name__}"))
            raise
        if response.status_code >= 500:
            self._watch.end(MCPServerError(self._watch.server, f"answered with HTTP status {response.status_code}"))
        if response.headers.get("content-encoding", "identity") != "identity":
            self._watch.end(MCPServerError(self._watch.server, "compressed an answer, unasked"))
            raise httpx2.DecodingError("a compressed answer", request=request)
        response.stream = _CountedBody(response.stream, self._watch)
        return response


class _CountedBody(httpx2.AsyncByteStream):
    """The body of an answer. Too much of it ends the server."""

    def __init__(self, stream: Any, watch: Watch) -> None:
        self._stream = stream
        self._watch = watch

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._stream:
                self._watch.count(len(piece), messages=piece.count(b"data:"))
                yield piece
        except CallInterruptedError as error:
            self._watch.end(error)
            raise httpx2.ReadError(str(error)) from error
        except httpx2.TransportError as error:
            self._watch.end(MCPServerError(self._watch.server, f"broke off an answer: {error}"))
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def _open_socket(sandbox: Sandbox, watch: Watch) -> AsyncIterator[str]:
    """Wait until a server in the sandbox listens, and yield the path of a socket that leads to it."""

    connections: set[asyncio.Task[None]] = set()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, SandboxError):
                async with sandbox.connect(watch.server.port) as inner:
                    await _relay((reader, writer), inner)
        finally:
            writer.close()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(task := asyncio.create_task(connect(reader, writer)))
        task.add_done_callback(connections.discard)

    while True:
        if watch.ended is not None:
            raise watch.ended
        try:
            async with sandbox.connect(watch.server.port):
                break
        except (ConnectionRefusedError, TimeoutError):
            await asyncio.sleep(_POLL_S)
    with tempfile.TemporaryDirectory(prefix="mcp-") as folder:
        path = str(Path(folder) / "server")
        async with await asyncio.start_unix_server(connected, path):
            try:
                yield path
            finally:  # a client's kept connection may outlast it
                await stop(connections)


async def _relay(one: Streams, other: Streams) -> None:
    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    pumps = {asyncio.create_task(pump(one[0], other[1])), asyncio.create_task(pump(other[0], one[1]))}
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        await stop(pumps)
