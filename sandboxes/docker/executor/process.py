"""A running, followed command in a container; `executor/follow.c` is the other end."""

from __future__ import annotations

import asyncio
import struct
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress

from sandboxes.base import DaemonRestarted, PtySize, SandboxDied, SandboxError, SandboxTimeout
from sandboxes.docker.executor.connection import Connection
from sandboxes.process import WINDOW, RunningProcess
from sandboxes.shielding import finish, stop

_PIECE = 64 << 10
_ANSWER_S = 30.0
"""How long after its own time limit, or after the last output was read, a command's end may take."""
_KILL_S = 10.0
_GONE = (SandboxDied, DaemonRestarted, SandboxTimeout)


class DockerProcess(RunningProcess):
    """A followed command. `begin` starts it; in the end `close`."""

    def __init__(
        self,
        connection: Connection,
        attribution: AbstractAsyncContextManager[None],
        *,
        timeout: float,
        stdin: bool,
        pty: PtySize | None,
        split: bool,
        max_output: int,
    ) -> None:
        super().__init__(stdin=stdin, pty=pty, split=split, max_output=max_output)
        self._split = split
        self._timeout = timeout
        self._connection = connection
        self._attribution = attribution
        self._call = connection.call(most=max_output)
        self._call.on_frame = self._take
        self._era = -1
        self._credit = WINDOW
        self._more = asyncio.Event()
        self._deaf = False
        self._watching: asyncio.Task[None] | None = None

    async def begin(self, request: bytes) -> None:
        """Start it. Raises SandboxError."""
        async with AsyncExitStack() as undo:
            undo.push_async_callback(lambda: finish(self.close()))
            self._era = await self._connection.ready()
            self._watching = asyncio.create_task(self._watch(), name="sandbox process")
            await self._connection.send(self._call.number, b"E", request, self._era)
            undo.pop_all()

    async def close(self) -> None:
        """Kill it if it has not ended."""
        if self._watching is not None and not self._done.done():
            with suppress(SandboxError):
                await self._kill()
            await asyncio.wait({self._done}, timeout=_KILL_S)
        self.fail(SandboxDied("its block was left"))
        if self._watching is not None:
            await stop({self._watching})
        self._connection.forget(self._call)

    async def _watch(self) -> None:
        try:
            async with self._attribution:
                _, payload = await self._answer()
            exit_code, flags, *dropped = struct.unpack("<IB3Q", payload)
        except SandboxError as error:
            self.fail(error)
            return
        except struct.error:
            self.fail(SandboxError("the executor has reported a command's end that is none"))
            return
        finally:
            self._connection.forget(self._call)
            self._more.set()
        apart = [self._call.apart.get(kind, b"") for kind in (b"o", b"e")] if self._split else []
        pairs = [(bytes(data), less) for data, less in zip((self._call.data, *apart), dropped, strict=False)]
        self.finish(exit_code, timed_out=bool(flags & 1), rest=pairs)

    async def _answer(self) -> tuple[bytes, bytes]:
        patience = self._timeout + _ANSWER_S
        while True:
            done, _ = await asyncio.wait({self._call.answer}, timeout=min(patience, 1e8))
            if done:
                return self._call.answer.result()
            if not self.has_unread:
                raise SandboxTimeout(f"a command's end was not reported within {patience:.0f} s")
            patience = _ANSWER_S

    def _take(self, kind: bytes, payload: bytes) -> None:
        if kind == b"G":
            self._credit += struct.unpack("<I", payload)[0]
        elif kind == b"Y":
            self._deaf = True
        else:
            if self._streams[kind == b"2"].unread <= WINDOW:  # an executor of ours never goes beyond it
                self.receive_output(payload, kind == b"2")
            return
        self._more.set()

    async def _send_frame(self, kind: bytes, payload: bytes = b"") -> None:
        """Send a frame; after the command's end it means nothing there. Raises the command's failure."""
        try:
            await self._connection.send(self._call.number, kind, payload, self._era)
        except _GONE:
            await asyncio.wait({self._done})
            self._done.result()

    async def grant_bytes(self, stream: int, size: int) -> None:
        await self._send_frame(b"g", struct.pack("<BI", stream, size))

    async def lift_bound(self, stream: int) -> None:
        await self._send_frame(b"v", bytes([stream]))

    async def _write(self, data: bytes) -> None:
        while data:
            while not self._credit and not self._deaf and not self._done.done():
                self._more.clear()
                await self._more.wait()
            self._raise_if_ended()
            if self._deaf:
                raise BrokenPipeError("the command reads no more of its standard input")
            size = min(self._credit, _PIECE)
            piece, data = data[:size], data[size:]
            self._credit -= size
            await self._send_frame(b"d", piece)

    async def _close_stdin(self) -> None:
        await self._send_frame(b"z")

    async def _send_signal(self, number: int) -> None:
        await self._send_frame(b"i", struct.pack("<I", number))

    async def _resize(self, size: PtySize) -> None:
        await self._send_frame(b"a", struct.pack("<2H", size.rows, size.cols))

    async def _kill(self) -> None:
        await self._send_frame(b"K")
