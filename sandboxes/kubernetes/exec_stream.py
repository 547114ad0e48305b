"""The stream of a program that a cluster has started in a container: a WebSocket with a channel a message."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp

from sandboxes.base import SandboxDied, SandboxError
from sandboxes.docker.executor.streams import TAKEN_S, ProgramStream

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _STATUS = range(4)
_OPEN = 90
"""The exit code of a relay in a pod with an open network."""
_TRIED = "error executing command in container"
"""What a kubelet says of a container's failure: the node is there."""
_MESSAGE = 1 << 20
"""The most that one message holds: API servers cut the stream at larger ones."""


class ExecStream(ProgramStream):
    """Standard input and output of the program. note_failure: hears why the cluster could not run it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, note_failure: Callable[[Exception], None]) -> None:
        self._socket = socket
        self._trouble = note_failure
        self._status = b""
        self.error_text = ""

    async def read(self) -> bytes:
        """Return received bytes, none at the end. Raises ConnectionError for a broken stream."""
        while True:
            message = await self._socket.receive()
            if message.type is aiohttp.WSMsgType.ERROR:
                raise ConnectionResetError(f"the stream broke: {message.data!r}")
            if message.type is not aiohttp.WSMsgType.BINARY:
                self._raise_failure()
                return b""
            channel, data = message.data[:1], message.data[1:]
            if channel == b"\1" and data:
                return bytes(data)
            if channel == b"\2":
                self.error_text = (self.error_text + data.decode(errors="replace"))[-4096:]
            elif channel == b"\3":
                self._status += data

    def _raise_failure(self) -> None:
        """Raise SandboxDied if a relay has found the network of its pod open, ConnectionError if the node was away."""
        try:
            code = self.exit_code
        except SandboxError as error:
            if (self._final_status.get("code") or 0) >= 500 and _TRIED not in str(error):
                self._trouble(error)
                raise ConnectionResetError(str(error)) from error
            return
        if code == _OPEN:
            raise SandboxDied(
                f"its network can't be closed: {self.error_text.strip()}; admit NET_ADMIN in the namespace, or use a "
                "network plugin that enforces NetworkPolicy (docs/pods.md)"
            )

    async def write(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(TAKEN_S * (1 + len(data) / _MESSAGE)):
                for start in range(0, len(data), _MESSAGE):
                    await self._socket.send_bytes(bytes([_STDIN]) + data[start : start + _MESSAGE])
        except aiohttp.ClientError as error:
            raise ConnectionResetError(str(error)) from error

    async def close(self) -> None:
        connection = self._socket._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()  # to close it would wait for the other side
        self._socket._response.close()

    @property
    def exit_code(self) -> int | None:
        status = self._final_status
        if not status:
            return None
        if status.get("status") == "Success":
            return 0
        for cause in (status.get("details") or {}).get("causes") or ():
            if cause.get("reason") == "ExitCode":
                return int(cause["message"])
        raise SandboxError(f"the cluster could not run a program of ours: {status.get('message')}")

    @property
    def _final_status(self) -> Mapping[str, Any]:
        """Return the status sent by the cluster at the end; empty before it."""
        try:
            found: Mapping[str, Any] = json.loads(self._status)
        except ValueError:
            return {}
        return found
