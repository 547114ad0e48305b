"""Frames over one stream. One that is cut while its container lives is opened again."""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import os
import struct
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Self

from sandboxes.base import DaemonRestarted, SandboxDied, SandboxError, SandboxTimeout, SandboxUnreachable
from sandboxes.docker.executor.streams import SocketStream, Stream
from sandboxes.docker.executor.tunnel import TUNNEL, Tunnel, Tunnels

logger = logging.getLogger(__name__)

PROTOCOL = 11
MAX_FRAME = 4 << 20
_HEADER = struct.Struct("<IIc")
_TOKEN_SIZE = 16
_RETURN_S = 60.0
"""How long the way to a container may be cut."""
_ATTEMPT_S = 10.0
_CLOSING_S = 5.0
_NEVER_S = 1e8

Attach = Callable[[], Awaitable[Stream]]
Runs = Callable[[], Awaitable[bool]]


@dataclass(slots=True)
class Call:
    """A request before its answer, and the data received so far. most: bytes of data that it may get; what an
    executor sends beyond them, and a frame, is dropped."""

    number: int
    answer: asyncio.Future[tuple[bytes, bytes]]
    most: int = 0
    data: bytearray = field(default_factory=bytearray)
    apart: dict[bytes, bytearray] = field(default_factory=dict)
    """A command's output to stdout, "o", and to stderr, "e", if they are kept apart."""
    on_frame: Callable[[bytes, bytes], None] | None = None
    """Takes the frames of a followed command, kind and payload."""


class Connection:
    """A stream with many requests at once. `attach`, start the container, `greet`; in the end `close`.

    attach: opens the container's stream. Raises SandboxError or OSError.
    runs: whether the container runs; raises if the Docker daemon does not say.
    tunnels: the handler of connections made inside.
    host: a name for whoever opens the streams, for messages; it may be away for `return_s` seconds.
    """

    def __init__(
        self,
        name: str,
        attach: Attach,
        is_running: Runs,
        tunnels: Tunnels | None = None,
        *,
        host: str = "Docker daemon",
        return_s: float = _RETURN_S,
    ) -> None:
        self._name = name
        self._host = host
        self._return_s = return_s
        self._attach = attach
        self._is_running = is_running
        self._tunnels = tunnels
        self._numbers = itertools.count(1)
        self._calls: dict[int, Call] = {}
        self._token = os.urandom(_TOKEN_SIZE)
        self._token_known = False
        """Whether the executor has answered a request, and so has the token before it."""
        self._stream: Stream | None = None
        self._reader: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        """Set while the stream is there, and once it is lost for good."""
        self._dead: str | None = None
        self._end: type[SandboxDied] = SandboxDied
        self.era = 0
        """Counts the streams: a request belongs to the stream of its beginning."""

    @classmethod
    def make_ended(cls, name: str, why: str) -> Self:
        """Return an ended one, in place of a connection with obsolete requests."""

        async def refuse() -> Any:
            raise SandboxDied(f"sandbox {name} is gone: {why}")

        connection = cls(name, refuse, refuse)
        connection._mark_dead(why)
        return connection

    @property
    def alive(self) -> bool:
        return self._dead is None

    @property
    def _outage_message(self) -> str:
        return f"the {self._host} of sandbox {self._name} was away for a moment"

    @property
    def busy(self) -> bool:
        """Return whether a request is under way."""
        return bool(self._calls)

    async def attach(self) -> None:
        self._stream = await self._attach()
        self._settled.set()

    async def greet(self, timeout_s: float) -> None:
        """Wait for the executor's greeting. Raises SandboxDied or SandboxTimeout."""
        hello = self.call(0)
        self._start_reading()
        try:
            _, payload = await self.answer(hello, timeout_s)
        except DaemonRestarted:
            return  # it has greeted on a new stream, and knows the token
        finally:
            self.forget(hello)
        (version,) = struct.unpack("<I", payload)
        if version != PROTOCOL:
            raise SandboxError(f"the executor speaks protocol {version}, this side {PROTOCOL}; rebuild the executor")
        await self.send(0, b"T", self._token, self.era)

    async def bypass_daemon(self, pid: int, timeout_s: float) -> bool:
        """Go on past the Docker daemon, over a socket of the executor's, if this process can reach it: as root on the
        executor's machine, where its process has this id. Nothing else may be under way. Returns whether it did."""
        place = f"/dev/shm/.{os.urandom(8).hex()}"
        offer = self.call()
        await self.send(offer.number, b"U", place.encode() + b"\0", self.era)
        _, error = await self.answer(offer, timeout_s)
        self.forget(offer)
        if any(error):
            return False
        try:
            stream = await SocketStream.open(f"/proc/{pid}/root{place}")
        except OSError as reason:  # it is not on this host, or not ours to enter
            logger.debug("%s: only by way of the Docker daemon: %r", self._name, reason)
            return False
        async with AsyncExitStack() as stack:
            stack.push_async_callback(stream.close)
            # When it greets us there it has let go of the attached stream, with which it would have ended.
            async with asyncio.timeout(timeout_s):
                if not await stream.read():
                    return False
            stack.pop_all()
        await self._stop_reading()
        self._stream = stream
        self._start_reading()
        return True

    def _start_reading(self) -> None:
        self._reader = asyncio.create_task(self._read_frames(), name=f"sandbox {self._name}")
        self._reader.add_done_callback(self._reading_ended)

    def _reading_ended(self, reader: asyncio.Task[None]) -> None:
        """Let no request wait for a reader that failed, as one whose client was closed does."""
        if not reader.cancelled() and (error := reader.exception()) is not None:
            logger.warning("Sandbox %s is given up: its answers can't be read", self._name, exc_info=error)
            self._mark_dead(f"its answers can't be read: {error!r}")

    async def _stop_reading(self) -> None:
        """Stop, and close the stream; if it does not close in time it is left alone."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait({self._reader}, timeout=_CLOSING_S)
        if self._stream is not None:
            await _close_quietly(self._stream)

    async def close(self) -> None:
        self._mark_dead("it was closed")
        await self._stop_reading()

    def call(self, number: int | None = None, *, most: int = 0) -> Call:
        """Expect an answer from now on, with so much data before it; `forget` it in the end."""
        number = next(self._numbers) if number is None else number
        call = self._calls[number] = Call(number, asyncio.get_running_loop().create_future(), most)
        return call

    def forget(self, call: Call) -> None:
        self._calls.pop(call.number, None)

    async def answer(self, call: Call, timeout_s: float) -> tuple[bytes, bytes]:
        """Return the answer's type and payload. Raises SandboxTimeout, SandboxDied, DaemonRestarted."""
        late = SandboxTimeout(f"sandbox {self._name} gave no answer within {timeout_s:.0f} s")
        timer = asyncio.get_running_loop().call_later(min(timeout_s, _NEVER_S), _fail, call, late)
        try:
            return await call.answer
        finally:
            timer.cancel()

    async def ready(self) -> int:
        """Return the era for a new request; waits while the daemon is away. Raises SandboxDied."""
        await self._settled.wait()
        self._raise_if_dead()
        return self.era

    async def send(self, number: int, kind: bytes, payload: bytes, era: int) -> None:
        """Send a frame. Raises SandboxDied, DaemonRestarted when the request began on an earlier stream, or
        SandboxTimeout when nobody takes it."""
        self._raise_if_dead()
        if era == self.era and self._stream is not None and self._settled.is_set():
            try:
                await self._stream.write(_HEADER.pack(len(payload), number, kind) + payload)
                return
            except TimeoutError as error:  # half of it may have gone: what is sent next would be taken for the rest
                self._mark_dead("its executor takes nothing any more")
                raise SandboxTimeout(f"sandbox {self._name} does not take what it is sent") from error
            except OSError as error:
                logger.debug("%s: cannot write: %r", self._name, error)
                if self._reader is not None and era == self.era:
                    self._mark_unsettled()  # the reader is about to find out what has happened
        await self._settled.wait()
        self._raise_if_dead()
        raise DaemonRestarted(self._outage_message)

    async def open_tunnel(self, payload: bytes, serve: Callable[[Tunnel], Awaitable[None]]) -> asyncio.Task[None]:
        """Connect to a server inside, and have the connection served. Returns the serving task. Raises OSError if it is
        refused, SandboxDied, DaemonRestarted."""
        era = await self.ready()
        if self._tunnels is None:
            raise SandboxError(f"sandbox {self._name} passes no connections on")
        return await self._tunnels.open(payload, functools.partial(self.send, era=era), serve)

    def end_tunnels(self, error: SandboxError) -> None:
        """End the connections out of the sandbox and into it. error: raised by connections still in the making."""
        if self._tunnels is not None:
            self._tunnels.end(error)

    def _mark_unsettled(self) -> None:
        if self._dead is None:  # else nobody would ever settle it again
            self._settled.clear()

    def _raise_if_dead(self) -> None:
        if self._dead is not None:
            raise self._died_error()

    def _died_error(self) -> SandboxDied:
        return self._end(f"sandbox {self._name} is gone: {self._dead}")

    async def _read_frames(self) -> None:
        buffer = bytearray()

        def take(data: bytes) -> None:
            buffer.extend(data)
            self._take_frames(buffer)

        while self._stream is not None:
            try:
                await self._stream.forward_to(take)
            except OSError as error:
                logger.debug("%s: cannot read: %r", self._name, error)
            self._mark_unsettled()
            try:
                if isinstance(self._stream, SocketStream):
                    raise SandboxDied("its container does not run any more")
                buffer[:] = await self._reattach(self._stream)
            except SandboxDied as error:
                self._mark_dead(str(error), type(error))
                return

    async def _reattach(self, old: Stream) -> bytearray:
        """Find out what has become of the sandbox. Returns its executor's words on a new stream.

        Raises SandboxDied if it is gone, SandboxUnreachable after `return_s`.
        """
        await _close_quietly(old)
        last: Exception | None = None
        try:
            async with asyncio.timeout(self._return_s):
                while True:
                    try:
                        async with asyncio.timeout(_ATTEMPT_S):
                            if not await self._is_running():
                                raise SandboxDied("its container does not run any more")
                            stream = await self._attach()
                            buffer = await self._resume(stream)
                        break
                    except SandboxDied:
                        raise
                    except LookupError as error:
                        raise SandboxDied(str(error)) from error
                    except (SandboxError, OSError) as error:
                        last = error
                        await asyncio.sleep(0.25)
        except TimeoutError as error:
            raise SandboxUnreachable(f"its {self._host} does not answer: {last}") from error
        logger.info("Sandbox %s has survived an absence of its %s", self._name, self._host)
        self._stream = stream
        self.era += 1
        self.end_tunnels(DaemonRestarted(self._outage_message))
        for call in self._calls.values():
            _fail(call, DaemonRestarted(self._outage_message))
        self._settled.set()
        return buffer

    async def _resume(self, stream: Stream) -> bytearray:
        """Have both sides drop incomplete frames; return the bytes after the executor's token."""
        await stream.write(self._token if self._token_known else _HEADER.pack(_TOKEN_SIZE, 0, b"V") + self._token)
        received = bytearray()
        while data := await stream.read():
            received += data
            before, found, after = received.partition(self._token)
            if found:
                self._token_known = True
                return bytearray(after)
            received = before[-_TOKEN_SIZE:]
        raise ConnectionError("the new stream ended")

    def _take_frames(self, buffer: bytearray) -> None:
        at = 0
        while len(buffer) - at >= _HEADER.size:
            length, number, kind = _HEADER.unpack_from(buffer, at)
            end = at + _HEADER.size + length
            if length > MAX_FRAME:  # it would be collected, up to 4 GiB
                self._mark_dead("its executor sends what is no frame")
            if self._dead is not None:
                at = len(buffer)
                break
            if len(buffer) < end:
                break
            if number & TUNNEL and self._tunnels is not None:
                send = functools.partial(self.send, era=self.era)
                self._tunnels.receive(number, kind, bytes(buffer[at + _HEADER.size : end]), send)
                at = end
                continue
            call = self._calls.get(number)
            payload = buffer[at + _HEADER.size : end]
            at = end
            if call is None or call.answer.done():
                continue  # given up meanwhile
            if kind in b"Ooe":
                data = call.data if kind == b"O" else call.apart.setdefault(kind, bytearray())
                if len(data) <= call.most:
                    data += payload
            elif kind in b"12GY" and call.on_frame is not None:
                call.on_frame(kind, bytes(payload))
            else:
                self._token_known = self._token_known or number != 0
                call.answer.set_result((kind, bytes(payload)))
        del buffer[:at]

    def _mark_dead(self, why: str, kind: type[SandboxDied] = SandboxDied) -> None:
        """End the connection. kind: of the error that says so, such as `PodEvicted`."""
        if self._dead is None:
            self._dead, self._end = why, kind
        self._settled.set()
        self.end_tunnels(self._died_error())
        for call in self._calls.values():
            _fail(call, self._died_error())


async def _close_quietly(stream: Stream) -> None:
    try:
        async with asyncio.timeout(_CLOSING_S):
            await stream.close()
    except OSError as error:
        logger.debug("a stream does not close: %r", error)


def _fail(call: Call, error: SandboxError) -> None:
    if not call.answer.done():
        call.answer.set_exception(error)
        call.answer.exception()  # seen, also when nobody waits any more
