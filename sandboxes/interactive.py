"""A shell in a sandbox on this process's terminal, or on its stdin, stdout and stderr.

On a terminal the shell has one of its own in the sandbox, and ours only carries bytes: Ctrl-C goes to the program
inside. Otherwise the shell reads stdin to its end.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import signal
import termios
import tty
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from sandboxes.base import OutputStream, Process, PtySize, Sandbox, SandboxError
from sandboxes.shielding import run_concurrently, stop

_SHELL = "command -v bash >/dev/null && exec bash; exec sh"
_PIECE = 1 << 16
_Work = Coroutine[Any, Any, None]


async def run_shell(sandbox: Sandbox, given: int = 0, out: int = 1, errors: int = 2) -> int:
    """Run a shell in a sandbox on these descriptors. Returns its exit status. Raises SandboxError, and OSError if its
    output can't be written."""
    terminal = os.isatty(given) and os.isatty(out)
    pty = _size(out) if terminal else None
    async with sandbox.start(_SHELL, stdin=True, pty=pty, split=not terminal) as process:
        if not terminal:
            outputs = [_copy(process.stdout, out), _copy(process.stderr, errors)]
            return await _follow(process, outputs, [_type(process, given, process.close_stdin)])
        with _raw(given):
            # A terminal that has ended is gone, and its shell goes with it.
            beside = [_type(process, given, process.kill), _follow_size(process, out)]
            return await _follow(process, [_copy(process.stdout, out)], beside)


async def _follow(process: Process, outputs: Sequence[_Work], beside: Sequence[_Work]) -> int:
    """Copy a shell's output to its end, and do the works `beside` meanwhile. Returns its exit status."""
    tasks = list(map(asyncio.create_task, beside))
    try:
        await run_concurrently(outputs)
        return (await process.wait()).exit_code
    finally:
        await stop(tasks)


async def _type(process: Process, fd: int, end: Callable[[], Awaitable[None]]) -> None:
    """Write to a shell from a descriptor. At its end, call `end`."""
    with suppress(BrokenPipeError, SandboxError):
        while data := await _read(fd):
            await process.write(data)
        await end()


async def _read(fd: int) -> bytes:
    """Return the next bytes, none at the end. Not in a thread, in which nothing could end the waiting."""
    ready, loop = asyncio.Event(), asyncio.get_running_loop()
    with suppress(PermissionError):  # of a file, which is always ready
        loop.add_reader(fd, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(fd)
    try:
        return os.read(fd, _PIECE)
    except OSError:  # of a terminal that is gone
        return b""


async def _copy(stream: OutputStream, fd: int) -> None:
    async for data in stream:
        await asyncio.to_thread(_write, fd, data)


def _write(fd: int, data: bytes) -> None:
    while data:
        select.select([], [fd], [])  # another program may have made it non-blocking
        try:
            data = data[os.write(fd, data) :]
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return  # the terminal is gone: reading it tells


async def _follow_size(process: Process, fd: int) -> None:
    """Give the shell's terminal the size of ours, whenever it changes."""
    changed, loop = asyncio.Event(), asyncio.get_running_loop()
    before = signal.signal(signal.SIGWINCH, lambda *_: loop.call_soon_threadsafe(changed.set))
    try:
        with suppress(SandboxError):
            while await changed.wait():
                changed.clear()
                await process.resize(_size(fd))
    finally:
        signal.signal(signal.SIGWINCH, before)


def _size(fd: int) -> PtySize:
    columns, rows = os.get_terminal_size(fd)
    return PtySize(rows or 24, columns or 80)


@contextmanager
def _raw(fd: int) -> Iterator[None]:
    """Leave keys and output to the sandbox's terminal. Nothing waits for our own: its other end may stand still."""
    before = termios.tcgetattr(fd)
    tty.setraw(fd, termios.TCSANOW)
    try:
        yield
    finally:
        with suppress(termios.error):  # it is gone
            termios.tcsetattr(fd, termios.TCSANOW, before)
