"""Requests to an E2B server: its sandboxes, and the programs that envd runs in each.

The published SDK is not used: it decodes output as UTF-8, and starts programs by a login shell, which belongs to the
sandbox. The wire is its own: REST for sandboxes, Connect RPC with JSON (connectrpc.com/docs/protocol) for processes.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import aiohttp

from sandboxes.base import DaemonRefused, DaemonUnavailable, SandboxDied, SandboxError
from sandboxes.docker.executor.streams import TAKEN_S, ProgramStream
from sandboxes.e2b.options import E2BOptions
from sandboxes.patience import patiently
from sandboxes.remote.api import ANSWER_S, Api, describe_cause, failure, header_value, message_of, text_of
from sandboxes.shielding import on_failure

logger = logging.getLogger(__name__)

_PORT = "49983"
_AS_ROOT = "Basic " + base64.b64encode(b"root:").decode()
_PING_S = 20
_SILENT_S = 90.0
_ENVELOPE = struct.Struct(">BI")
_LAST = 2
_MESSAGE = 1 << 19
"""The most input in one request: aiohttp warns of bodies above 1 MiB, and proxies refuse them."""
_LARGEST = 16 << 20
"""Bytes of the largest event: one holds what a program wrote at once."""
_STATUSES = {
    "invalid_argument": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "not_found": 404,
    "resource_exhausted": 429,
}
"""Codes of Connect RPC as statuses of HTTP; the others count as the server's own failure."""


class Server(Api):
    """The REST API."""

    name: ClassVar[str] = "E2B server"
    remedy: ClassVar[str] = "put its key into the variable that --env.e2b.key names"
    address: ClassVar[str] = "--env.e2b.api_url"

    def __init__(self, http: aiohttp.ClientSession, options: E2BOptions, key: str) -> None:
        super().__init__(http, options.api_url.rstrip("/"))
        self._key = key
        self._sandbox_url = options.sandbox_url

    @classmethod
    @asynccontextmanager
    async def connect(cls, options: E2BOptions) -> AsyncIterator[Server]:
        """Raises DaemonRefused without a key that can be sent."""
        key = os.environ.get(options.key, "")
        if not key:
            raise DaemonRefused(f"--env.sandbox e2b: {options.key} is not set; it holds the API's key")
        header_value(key, f"--env.sandbox e2b: the variable {options.key}")
        unbounded = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=unbounded) as http:
            yield cls(http, options, key)

    async def _headers(self) -> dict[str, str]:
        return {"X-API-Key": self._key}

    def connect_envd(self, made: Mapping[str, Any]) -> Envd:
        """Return the way into a sandbox. made: the answer to its creation."""
        token = made.get("envdAccessToken") or ""
        url = self._sandbox_url.format(id=made["sandboxID"], domain=made.get("domain") or "e2b.app")
        return Envd(self._http, url.rstrip("/"), made["sandboxID"], token)


async def check_server(options: E2BOptions) -> None:
    """Ask for a list of sandboxes. Raises DaemonUnavailable or Busy, and ValueError for a wrong address or key."""
    try:
        async with Server.connect(options) as server:
            question = server.request("GET", "/v2/sandboxes", limit="1")
            await patiently(question, f"The E2B server at {options.api_url}")
    except DaemonRefused as error:
        raise ValueError(str(error)) from error
    except SandboxDied as error:
        raise ValueError(f"--env.e2b.api_url {options.api_url}: {error}") from error


class Envd(Api):
    """The programs and files of one sandbox, as its root."""

    name: ClassVar[str] = "E2B sandbox"
    remedy: ClassVar[str] = "its server gave a wrong access token"
    address: ClassVar[str] = "--env.e2b.sandbox_url"

    def __init__(self, http: aiohttp.ClientSession, url: str, sandbox: str, token: str) -> None:
        super().__init__(http, url)
        self._sandbox = sandbox
        self.token = token

    async def _headers(self) -> dict[str, str]:
        token = {"X-Access-Token": self.token} if self.token else {}
        address = {"E2b-Sandbox-Id": self._sandbox, "E2b-Sandbox-Port": _PORT}
        return {"Authorization": _AS_ROOT, "Connect-Protocol-Version": "1", **address, **token}

    async def write(self, path: str, data: bytes) -> None:
        """Write a file. Raises SandboxError."""
        form = aiohttp.FormData()
        form.add_field("file", data, filename=path)
        url = self._url("/files", {"path": path, "username": "root"})
        try:
            async with (
                asyncio.timeout(ANSWER_S),
                self._http.post(url, data=form, headers=await self._headers(), allow_redirects=False) as answer,
            ):
                if answer.status >= 300:
                    raise self.failure(answer.status, message_of(await text_of(answer)), f"POST /files for {path}")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise DaemonUnavailable(
                f"a file can't be put into sandbox {self._sandbox}: {describe_cause(error)}"
            ) from error

    async def start(self, *command: str, stdin: bool = False) -> EnvdStream:
        """Start a program. Raises SandboxError."""
        doing = f"starting {command[0]} in {self._sandbox}"
        request = {"process": {"cmd": command[0], "args": command[1:]}, "stdin": stdin}
        body = json.dumps(request).encode()
        headers = {"Content-Type": "application/connect+json", "Keepalive-Ping-Interval": str(_PING_S)}
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await self._http.post(
                    self._url("/process.Process/Start", {}),
                    data=_ENVELOPE.pack(0, len(body)) + body,
                    headers=await self._headers() | headers,
                    timeout=aiohttp.ClientTimeout(total=None, sock_read=_SILENT_S),
                    allow_redirects=False,
                )
                if answer.status >= 300:
                    raise self.failure(answer.status, message_of(await text_of(answer)), doing)
                return await EnvdStream.open(answer, self._send_input, doing)
        except SandboxError:
            raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise DaemonUnavailable(f"{doing}: the server does not answer: {describe_cause(error)}") from error

    async def run(self, *command: str) -> bytes:
        """Run a program to its end; return its output. Raises SandboxError if it fails."""
        stream = await self.start(*command)
        try:
            return await stream.read_all(command[0], 1 << 20)
        finally:
            await stream.close()

    async def _send_input(self, pid: int, data: bytes) -> None:
        given = {"process": {"pid": pid}, "input": {"stdin": base64.b64encode(data).decode()}}
        await self.request("POST", "/process.Process/SendInput", given)


class _StreamRefusedError(ConnectionResetError):
    """The server ended a stream with an error."""

    def __init__(self, error: Mapping[str, str]) -> None:
        super().__init__(f"{error.get('code')}: {error.get('message')}")
        self.status = _STATUSES.get(error.get("code", ""), 500)


SendInput = Callable[[int, bytes], Awaitable[None]]


class EnvdStream(ProgramStream):
    """Standard input and output of a program that envd runs. A cut stream leaves the program running."""

    exit_code: int | None = None
    error_text = ""

    def __init__(self, answer: aiohttp.ClientResponse, send_input: SendInput) -> None:
        self._answer = answer
        self._send_input = send_input
        self._pid = 0
        self._out = bytearray()
        self._requested = self._sent = 0
        self._moved = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, answer: aiohttp.ClientResponse, send_input: SendInput, doing: str) -> EnvdStream:
        """Wait until the program runs. Raises SandboxError if it can't be started, ConnectionError."""
        stream = cls(answer, send_input)
        with on_failure(lambda _: answer.close()):
            try:
                event = await stream._next()
                stream._pid = int(event["start"]["pid"])
            except _StreamRefusedError as error:
                raise failure(error.status, str(error), doing) from error
            except KeyError as error:
                raise SandboxError(f"{doing}: the server did not say that it began") from error
        return stream

    async def _next(self) -> dict[str, Any]:
        """Return the next event, {} at the end."""
        try:
            flags, size = _ENVELOPE.unpack(await self._answer.content.readexactly(_ENVELOPE.size))
            if size > _LARGEST:
                raise ValueError(f"an event of {size} bytes")
            frame = json.loads(await self._answer.content.readexactly(size) or b"{}")
        except (aiohttp.ClientError, EOFError, TimeoutError, ValueError) as error:
            raise ConnectionResetError(f"the stream broke: {describe_cause(error)}") from error
        if flags & _LAST:
            if refusal := frame.get("error"):
                raise _StreamRefusedError(refusal)
            return {}
        return dict(frame.get("event") or {"keepalive": {}})

    async def read_output(self) -> bytes | None:
        """Return the next event's output, b"" if it has none, None at the end. Raises ConnectionError."""
        event = await self._next()
        if not event:
            return None
        data = event.get("data", {})
        if "stderr" in data:
            self.error_text = (self.error_text + base64.b64decode(data["stderr"]).decode(errors="replace"))[-4096:]
        if "end" in event:
            code = int(event["end"].get("exitCode", 0))
            self.exit_code = code if code >= 0 else 137  # of a signal
        return base64.b64decode(data.get("stdout", ""))

    async def read(self) -> bytes:
        """Return output, none at the end. Raises ConnectionError for a broken stream."""
        while (data := await self.read_output()) is not None:
            if data:
                return data
        return b""

    async def write(self, data: bytes) -> None:
        self._out += data
        self._requested += len(data)
        mine = self._requested
        if self._sender is None or (self._sender.done() and self._sent == mine - len(data)):
            self._sender = asyncio.create_task(self._send_all(), name="input of a sandbox")
        async with asyncio.timeout(TAKEN_S * (2 + len(data) / _MESSAGE)):
            while self._sent < mine:
                if self._sender.done():
                    raise ConnectionResetError("the server takes no input for the program")
                await self._moved.wait()

    async def _send_all(self) -> None:
        """Send what was written, in order: a piece goes when the last one has arrived."""
        try:
            while self._out:
                piece = bytes(self._out[:_MESSAGE])
                del self._out[:_MESSAGE]
                try:
                    await self._send_input(self._pid, piece)
                except SandboxError as error:
                    logger.debug("the program takes no input: %s", error)
                    return
                self._sent += len(piece)
                self._send_pending()
        finally:
            self._send_pending()

    def _send_pending(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    async def close(self) -> None:
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait({self._sender})
        self._answer.close()
