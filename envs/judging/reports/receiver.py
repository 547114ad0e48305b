"""The test runners' reports from the verifier's sandbox, through a door of it.

Each process that runs tests has a connection of its own, and each connection is a call. All reports may be the code
under test's own: they are bounded here, and compared with the key elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

MAX_BYTES = 16 * 2**20
"""The most that a sandbox may report."""
MAX_MESSAGES = 250_000
MAX_CALLS = 5_000
_MOST_KEYS = 16
_MAX_LINE = 2**20
_SETTLE_S = 2.0

Message = Mapping[str, Any]


class Receiver:
    """The reports from one sandbox. Reports beyond `MAX_BYTES`, `MAX_MESSAGES` and `MAX_CALLS` are not taken."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._taken = self._messages = 0

    def door(self) -> asyncio.Protocol:
        """Return the protocol for a connection out of the sandbox."""
        call = _Call(self)
        if len(self._calls) < MAX_CALLS:
            self._calls.append(call)
        return call

    async def calls(self) -> list[Sequence[Message]]:
        """Return the messages of each call, in the order of the calls' beginnings. Waits a moment for the messages
        of ended processes."""
        with contextlib.suppress(TimeoutError):  # what runs on may keep its connection
            async with asyncio.timeout(_SETTLE_S):
                for call in self._calls:
                    await call.settled.wait()
        return [call.messages for call in self._calls if call.messages]

    def take(self, size: int, messages: int) -> bool:
        """Return whether so many bytes and messages more may come."""
        self._taken += size
        self._messages += messages
        return self._taken <= MAX_BYTES and self._messages <= MAX_MESSAGES


class _Call(asyncio.Protocol):
    """One connection. settled: nothing more is expected of it."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver, self._rest, self._transport = receiver, bytearray(), asyncio.Transport()
        self.messages: list[Message] = []
        self.settled = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - doors carry streams
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._receiver.take(len(data), data.count(b"\n")):
            self._transport.abort()
            return
        self._rest += data
        if b"\n" in data:
            *lines, self._rest = self._rest.split(b"\n")
            for line in lines:
                self._line(line)
        if len(self._rest) > _MAX_LINE:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.settled.set()

    def _line(self, line: bytearray) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(message, dict) or not _is_flat(message):
            return
        self.messages.append(message)
        if message.get("kind") == "finish":
            self.settled.set()
            self._transport.write(b"\n")
        else:
            self.settled.clear()


def _is_flat(message: Message) -> bool:
    """Return whether a message is of the kind of ours: in memory, nested ones take many times their text's size."""
    inner = (one for value in message.values() for one in (value if isinstance(value, list) else [value]))
    return len(message) <= _MOST_KEYS and not any(isinstance(one, dict | list) for one in inner)
