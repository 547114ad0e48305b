"""A running command: its output read as it comes, its input written, the same way for every backend.

Each stream may be `WINDOW` bytes ahead of its reader; then the command is held up, as by a pipe.
"""

from __future__ import annotations

import asyncio
import signal
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from sandboxes.base import ExecResult, OutputStream, Process, PtySize, SandboxError
from sandboxes.output import CollectedOutput

WINDOW = 128 << 10
"""Bytes by which one side of a stream may be ahead of the other."""
_PIECE = 64 << 10
_UNREAD_S = 1.0
"""How long output may lie unread by another task before `wait` reads it."""
_END_OF_INPUT = b"\x04"
"""The end of input for a program with lines from a terminal."""


class RunningProcess(Process):
    """The common part of backends' processes. A subclass implements the abstract methods and reports its news:
    `receive_output`, and in the end `finish` or `fail`. Requests to an ended command do nothing."""

    def __init__(self, *, stdin: bool, pty: PtySize | None, split: bool, max_output: int) -> None:
        if pty is not None and split:
            raise ValueError("a terminal is one stream: start it without split")
        self._collected = CollectedOutput(max_output, split=split)
        self._streams = [_Stream(self, number) for number in range(2 if split else 1)]
        self._pty = pty
        self._has_stdin = stdin or pty is not None
        self._start = time.monotonic()
        self._done: asyncio.Future[ExecResult] = asyncio.get_running_loop().create_future()

    @property
    def stdout(self) -> OutputStream:
        return self._streams[0]

    @property
    def stderr(self) -> OutputStream:
        if len(self._streams) == 1:
            raise ValueError("stdout and stderr come as one stream: start it with split=True, or read stdout")
        return self._streams[1]

    @property
    def exit_code(self) -> int | None:
        done = self._done
        return done.result().exit_code if done.done() and done.exception() is None else None

    def __aiter__(self) -> AsyncIterator[bytes]:
        if len(self._streams) > 1:
            raise ValueError("stdout and stderr are apart: iterate over each of them")
        return self._streams[0].__aiter__()

    async def write(self, data: bytes) -> None:
        if not self._has_stdin:
            raise ValueError("it has no standard input to write to: start it with stdin=True")
        self._raise_if_ended()
        await self._write(data)

    def _raise_if_ended(self) -> None:
        if self._done.done():
            self._done.result()
            raise BrokenPipeError("the command has ended")

    async def close_stdin(self) -> None:
        if not self._has_stdin:
            raise ValueError("it has no standard input to close: start it with stdin=True")
        if not self._done.done():
            await (self._close_stdin() if self._pty is None else self._write(_END_OF_INPUT))

    async def send_signal(self, number: int) -> None:
        if number not in signal.valid_signals():
            raise ValueError(f"there is no signal {number}")
        if not self._done.done():
            await self._send_signal(number)

    async def resize(self, size: PtySize) -> None:
        if self._pty is None:
            raise ValueError("it has no terminal: start it with pty=PtySize()")
        if not self._done.done():
            await self._resize(size)

    async def kill(self) -> None:
        if not self._done.done():
            await self._kill()
            await self.wait()

    async def wait(self) -> ExecResult:
        while not self._done.done():
            read = [stream for stream in self._streams if stream.is_read()]
            for stream in self._streams:
                if stream not in read:
                    await stream.lift_bound()
            await asyncio.wait({self._done}, timeout=_UNREAD_S if read else None)
        return self._done.result()

    # What a backend says

    def receive_output(self, data: bytes, stream: int = 0) -> None:
        """Take new output."""
        self._collected.add(data, stream)
        self._streams[stream].feed(data)

    def finish(self, exit_code: int, *, timed_out: bool = False, rest: Sequence[tuple[bytes, int]] = ()) -> None:
        """Take the command's end. rest: output kept until then, and the number of bytes dropped in its middle:
        of both streams, then of each if they are apart."""
        for stream, (data, _) in zip(self._streams, rest[-len(self._streams) :], strict=False):
            stream.feed(data)
        self._collected.add_rest(rest)
        raw, truncated, stdout, stderr = self._collected.result()
        took = time.monotonic() - self._start
        result = ExecResult(exit_code, raw, timed_out, truncated, took, raw_stdout=stdout, raw_stderr=stderr)
        if not self._done.done():
            self._done.set_result(result)
        for stream in self._streams:
            stream.end()

    def fail(self, error: SandboxError) -> None:
        """Take the sandbox's failure."""
        if not self._done.done():
            self._done.set_exception(error)
            self._done.exception()  # seen, also when nobody waits
        for stream in self._streams:
            stream.end(error)

    @property
    def has_unread(self) -> bool:
        """Return whether output waits to be read."""
        return any(stream.has_unread for stream in self._streams)

    # What a backend does

    @abstractmethod
    async def grant_bytes(self, stream: int, size: int) -> None:
        """Let as many more bytes of a stream come: so many were read."""

    @abstractmethod
    async def lift_bound(self, stream: int) -> None:
        """Let a stream come without bound: it is not read any more."""

    @abstractmethod
    async def _write(self, data: bytes) -> None: ...

    @abstractmethod
    async def _close_stdin(self) -> None: ...

    @abstractmethod
    async def _send_signal(self, number: int) -> None: ...

    @abstractmethod
    async def _resize(self, size: PtySize) -> None: ...

    @abstractmethod
    async def _kill(self) -> None:
        """Kill the command's processes."""


class _Stream(OutputStream):
    """One stream of a running command's output."""

    def __init__(self, process: RunningProcess, number: int) -> None:
        self._process = process
        self._number = number
        self._buffer = bytearray()
        self._taken = 0
        self._news = asyncio.Event()
        self._ended = self._is_unbounded = self._lost = False
        self._error: SandboxError | None = None
        self._reader: asyncio.Task[Any] | None = None
        self._last_read = 0.0

    async def read(self, size: int = _PIECE) -> bytes:
        await self._wait_for(lambda: bool(self._buffer))
        return await self._take(size)

    async def readline(self) -> bytes:
        await self._wait_for(lambda: b"\n" in self._buffer or len(self._buffer) >= WINDOW)
        return await self._take(self._buffer.find(b"\n") + 1 or len(self._buffer))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self.read():
            yield data

    async def _wait_for(self, enough: Callable[[], bool]) -> None:
        self._reader = asyncio.current_task()
        while not enough() and not self._ended:
            self._news.clear()
            await self._grant_bytes()
            await self._news.wait()

    async def _take(self, size: int) -> bytes:
        self._last_read = asyncio.get_running_loop().time()
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        self._taken += len(data)
        if self._taken >= WINDOW // 4:
            await self._grant_bytes()
        if not data and self._error is not None:
            raise self._error
        if not data and self._lost:
            raise ValueError("the rest of this stream was read by wait: its result holds it")
        return data

    async def _grant_bytes(self) -> None:
        size, self._taken = self._taken, 0
        if size and not self._ended and not self._is_unbounded:
            await self._process.grant_bytes(self._number, size)

    @property
    def unread(self) -> int:
        return len(self._buffer)

    @property
    def has_unread(self) -> bool:
        return bool(self._buffer) and not self._is_unbounded

    def is_read(self) -> bool:
        """Return whether another task reads it: not if available output was left unread for a while."""
        reader = self._reader
        if self._is_unbounded or reader is None or reader is asyncio.current_task() or reader.done():
            return False
        return not self._buffer or asyncio.get_running_loop().time() - self._last_read < _UNREAD_S

    async def lift_bound(self) -> None:
        """Hold no more than there is; later output is the result's alone."""
        if not self._is_unbounded and not self._ended:
            self._is_unbounded = True
            await self._process.lift_bound(self._number)

    def feed(self, data: bytes) -> None:
        if self._is_unbounded:
            self._lost = self._lost or bool(data)
            return
        self._buffer += data
        self._news.set()

    def end(self, error: SandboxError | None = None) -> None:
        self._ended, self._error = True, error
        self._news.set()
