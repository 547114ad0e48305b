"""A running, followed command of this machine; in a container `executor/follow.c` does this."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import termios
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import IO

from sandboxes.base import PtySize, SandboxDied
from sandboxes.local.pump import Pump
from sandboxes.local.spawn import spawn
from sandboxes.local.sweep import kill_marked
from sandboxes.process import WINDOW, RunningProcess
from sandboxes.shielding import finish

_PIECE = 64 << 10
_TAKE_TERMINAL = 'exec "$@" <>"$0" >&0 2>&1'


class LocalProcess(RunningProcess):
    """A followed command. `begin` starts it; in the end `close`. marker: "NAME=value", in its environment."""

    def __init__(
        self, marker: str, *, timeout: float, stdin: bool, pty: PtySize | None, split: bool, max_output: int
    ) -> None:
        super().__init__(stdin=stdin, pty=pty, split=split, max_output=max_output)
        self._marker = marker
        self._timeout = timeout
        self._pipe_count = 2 if split else 1
        self._input: int | None = None
        self._writable = asyncio.Event()
        self._turn = asyncio.Lock()
        self._pumps: list[Pump] = []
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None

    async def begin(self, argv: list[str], env: Mapping[str, str], cwd: Path, given: IO[bytes] | None = None) -> None:
        """Start it; if the program can't be run, the failure is a result. given: its whole standard input."""
        theirs: list[int] = []
        try:
            self._process = await self._spawn(argv, env, cwd, given, theirs)
        except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
            missing = isinstance(error, FileNotFoundError) and str(error.filename) != str(cwd)
            self.receive_output(f"sandbox: {error}\n".encode(), self._pipe_count - 1)
            self.finish(127 if missing else 126)
            return
        finally:
            for fd in theirs:
                os.close(fd)
        self._watching = asyncio.create_task(self._watch(self._process), name="local process")

    async def _spawn(
        self, argv: list[str], env: Mapping[str, str], cwd: Path, given: IO[bytes] | None, theirs: list[int]
    ) -> asyncio.subprocess.Process:
        source = asyncio.subprocess.DEVNULL if given is None else given.fileno()
        if self._pty is not None:
            ours, terminal = os.openpty()
            theirs.append(terminal)
            _set_size(ours, self._pty)
            # Whoever leads a session and opens a terminal takes it as its own.
            argv = ["/bin/sh", "-c", _TAKE_TERMINAL, os.ttyname(terminal), *argv]
            self._input, outputs, source = os.dup(ours), [terminal], terminal
            self._pumps = [Pump(ours, self.receive_output, WINDOW)]
        else:
            if self._has_stdin:
                source, self._input = os.pipe()
                theirs.append(source)
            pipes = [os.pipe() for _ in range(self._pipe_count)]
            outputs = [writer for _, writer in pipes]
            theirs += outputs
            takes = [partial(self.receive_output, stream=stream) for stream in range(self._pipe_count)]
            self._pumps = [Pump(reader, take, WINDOW) for (reader, _), take in zip(pipes, takes, strict=True)]
        if self._input is not None:
            os.set_blocking(self._input, False)
        return await spawn(*argv, env=env, cwd=cwd, stdin=source, stdout=outputs[0], stderr=outputs[-1])

    async def close(self) -> None:
        """Kill it if it has not ended."""
        if not self._done.done():
            await self._kill()
        if self._watching is not None:
            await asyncio.wait({self._watching})
        self.fail(SandboxDied("its block was left"))
        self._close_input()
        if self._watching is None:
            self.stop_reading()

    def stop_reading(self) -> None:
        """Let nobody write to it any more; until then its background processes may go on printing."""
        for pump in self._pumps:
            pump.close()

    @property
    def is_open(self) -> bool:
        """Return whether more output may come, as of what it has left in the background."""
        return any(pump.open for pump in self._pumps)

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        timed_out = False
        try:
            code = await asyncio.wait_for(process.wait(), min(self._timeout, 1e8))
        except TimeoutError:
            timed_out = True
            await self._kill()
            await process.wait()
            code = 124
        await asyncio.gather(*(pump.wait_drained() for pump in self._pumps))
        self._close_input()
        for pump in self._pumps:
            pump.take = None
            pump.allow(None)
        self.finish(128 - code if code < 0 else code, timed_out=timed_out)

    async def grant_bytes(self, stream: int, size: int) -> None:
        self._pumps[stream].allow(size)

    async def lift_bound(self, stream: int) -> None:
        self._pumps[stream].allow(None)

    async def _write(self, data: bytes) -> None:
        async with self._turn:
            while data:
                self._raise_if_ended()
                if self._input is None:
                    raise BrokenPipeError("the command reads no more of its standard input")
                try:
                    data = data[os.write(self._input, data[:_PIECE]) :]
                except BlockingIOError:
                    await self._until_writable(self._input)
                except OSError as error:
                    self._close_input()
                    raise BrokenPipeError("the command reads no more of its standard input") from error

    async def _until_writable(self, fd: int) -> None:
        self._writable.clear()
        asyncio.get_running_loop().add_writer(fd, self._writable.set)
        try:
            await self._writable.wait()
        finally:
            if self._input == fd:
                asyncio.get_running_loop().remove_writer(fd)

    async def _close_stdin(self) -> None:
        async with self._turn:
            self._close_input()

    def _close_input(self) -> None:
        fd, self._input = self._input, None
        if fd is not None:
            asyncio.get_running_loop().remove_writer(fd)
            os.close(fd)
        self._writable.set()

    async def _send_signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def _resize(self, size: PtySize) -> None:
        if self._input is not None:
            _set_size(self._input, size)

    async def _kill(self) -> None:
        await finish(asyncio.to_thread(kill_marked, self._marker))
        await self._send_signal(signal.SIGKILL)  # its program may have been replaced by one without the marker
        for pump in self._pumps:
            pump.allow(None)  # what is left comes, at most a pipe of each


def _set_size(terminal: int, size: PtySize) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("<4H", size.rows, size.cols, 0, 0))
