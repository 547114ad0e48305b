"""One container of crun's, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
from pathlib import Path

_DEFAULT = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
"""Signals that a program would inherit as ignored: Python ignores some itself, and nohup another."""
_SEALS = 0xF
"""F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE."""


class CrunProcess:
    """A process of crun's in the foreground. It waits for the container's end and then removes everything it has made
    for it.

    To be used in the event loop but for `spawn`.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.first = -1
        """The id of the container's first process, once it is known."""
        self._first_fd = -1
        self._fd = os.pidfd_open(pid)
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(self._fd, self._note_exit)

    def _note_exit(self) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)
        try:
            code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:  # somebody else in this process has waited for it
            code = -1
        if not self._ended.done():
            self._ended.set_result(code)

    def note_first_process(self, first: int) -> None:
        """Take note of the first process, which must be there."""
        self.first, self._first_fd = first, os.pidfd_open(first)

    def kill(self) -> None:
        if self._first_fd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first_fd, signal.SIGKILL)

    async def wait(self, timeout_s: float) -> int:
        """Wait for its end, and return how it ended. Raises TimeoutError."""
        return await asyncio.wait_for(asyncio.shield(self._ended), timeout_s)

    async def close(self, timeout_s: float) -> bool:
        """Kill it, and crun if it does not end by itself. Returns whether crun has removed everything it had made."""
        self.kill()
        try:
            code = await self.wait(timeout_s)
        except TimeoutError:
            os.kill(self.pid, signal.SIGKILL)
            await self._ended
            return False
        finally:
            if self._first_fd >= 0:
                os.close(self._first_fd)
                self._first_fd = -1
        return code >= 0  # it was not killed itself


def make_sealed_copy(program: Path) -> int:
    """Return a descriptor of an unchangeable copy of a program in memory, to be run as /proc/self/fd/N.

    crun wants to run from such a copy, and else makes one each time and starts itself again. Raises OSError.
    """
    copy = os.memfd_create(program.name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, copy)
        with os.fdopen(os.dup(copy), "wb") as file:
            file.write(program.read_bytes())
        fcntl.fcntl(copy, fcntl.F_ADD_SEALS, _SEALS)
        undo.pop_all()
    return copy


def spawn(crun: Path, state: Path, bundle: Path, name: str, stream: socket.socket) -> int:
    """Start crun with a bundle. stream: input and output of the container's first process. Returns crun's id."""
    command = [
        *(str(crun), f"--root={state}", "--cgroup-manager=cgroupfs", f"--log={bundle / 'log'}"),
        *("run", f"--bundle={bundle}", name),
    ]
    files = [
        (os.POSIX_SPAWN_DUP2, stream.fileno(), 0),
        (os.POSIX_SPAWN_DUP2, stream.fileno(), 1),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    return os.posix_spawn(
        crun, command, {"PATH": os.defpath}, file_actions=files, setsid=True, setsigmask=[], setsigdef=_DEFAULT
    )
