"""Python programs that end with the process that started them, after any end of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import IO

from sandboxes.shielding import end

STOP_S = 30.0
"""How long a program may take to end on request."""

_GUARD = """
read -r _
kill -s TERM -- "-$1"
for _ in 1 2 3 4 5 6 7 8 9 10; do
    sleep 1
    kill -s 0 -- "-$1" || exit 0
done
kill -s KILL -- "-$1"
"""
"""Ends a program when our end of its pipe is closed, as by any death of ours; everything started by the program
is in its process group, and ends with it."""


class Child:
    """A running program. Made by `start_child`."""

    def __init__(self, process: asyncio.subprocess.Process, guard: asyncio.subprocess.Process) -> None:
        self._process = process
        self._guard = guard

    @property
    def pid(self) -> int:
        """Return its process id, also the id of its process group."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Return how it ended; None while it runs."""
        return self._process.returncode

    async def wait(self) -> int:
        """Wait for its end. Returns its exit status."""
        return await self._process.wait()

    async def output(self) -> bytes:
        """Return its output to a pipe until it ends."""
        return (await self._process.communicate())[0]

    def kill(self) -> None:
        """End it at once, with everything started by it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    async def stop(self) -> None:
        """End it, in good order if it does so in time, with everything started by it."""
        try:
            if self.status is None:
                with contextlib.suppress(ProcessLookupError, TimeoutError):
                    self._process.terminate()
                    async with asyncio.timeout(STOP_S):
                        await self._process.wait()
        finally:
            # Also where we are cancelled: nothing is left behind.
            self.kill()
            if self._guard.returncode is None:
                self._guard.kill()
            await asyncio.gather(self._process.wait(), self._guard.wait())


async def start_child(
    arguments: Sequence[str], *, stdout: int | IO[bytes], stderr: int | IO[bytes] | None, env: Mapping[str, str]
) -> Child:
    """Run Python with `arguments`, in a session of its own, so Ctrl-C reaches us alone."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        env=env,
    )
    async with contextlib.AsyncExitStack() as undo:
        undo.push_async_callback(end, process)  # no program is left without its guard
        guard = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", _GUARD, "guard", str(process.pid)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        undo.pop_all()
    return Child(process, guard)
