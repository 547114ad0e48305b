"""A sandbox whose forks carry its sessions along: their directories, variables and functions.

Processes can't be carried. While the programs inside have left one running, it isn't forked: `Busy`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from sandboxes.base import ExecResult, NotSupported, Sandbox, SandboxError, Session
from sandboxes.shell import STATE, restoring
from sandboxes.wrapped import WrappedSandbox, WrappedSession

_MOST = 1_000_000
"""Bytes of a session's state."""

_PROCESSES = """echo "$$"
for __one in /proc/[0-9]*/stat; do
  IFS= read -r __line <"$__one" && echo "${__one%/stat} ${__line##*) }"
done 2>/dev/null"""
"""Prints its own process id, then a process a line: its folder, its state, its parent's id, and more."""


class Busy(Exception):
    """A sandbox can't be forked whole; the message says what would be missing."""


class CarriedSession(WrappedSession):
    """A session that begins in another one's state. state: see `sandboxes.shell.STATE`; None for none."""

    def __init__(self, inner: Session, state: str | None) -> None:
        super().__init__(inner)
        self._state = state

    async def run(self, command: str, **options: Any) -> ExecResult:
        if self._state is not None:
            await self.inner.run(restoring(self._state))
            self._state = None
        return await self.inner.run(command, **options)

    async def state(self) -> tuple[str, int | None]:
        """Return its state, and its shell's process id; None if there is no shell yet. Raises Busy."""
        if self._state is not None:
            return self._state, None
        said = await self.inner.run(STATE, max_output=_MOST)
        text, _, pid = said.raw.decode(errors="surrogateescape").rpartition("# ")
        if said.truncated or not pid.strip().isdecimal():
            raise Busy("the state of its shell can't be read")
        return text, int(pid)


class CarryingSandbox(WrappedSandbox):
    """A sandbox that can be forked with its sessions. states: of the sessions to be opened, in their order."""

    def __init__(self, inner: Sandbox, states: Sequence[str] = ()) -> None:
        super().__init__(inner)
        self._states = states
        self._sessions: list[CarriedSession] = []

    async def session(self, **options: Any) -> Session:
        place = len(self._sessions)
        state = self._states[place] if place < len(self._states) else None
        self._sessions.append(CarriedSession(await self.inner.session(**options), state))
        return self._sessions[-1]

    async def reset(self) -> None:
        await self.inner.reset()
        self._sessions.clear()

    @asynccontextmanager
    async def carry(self) -> AsyncIterator[CarryingSandbox]:
        """Fork it, with its sessions. Raises Busy, NotSupported, SandboxError."""
        found = [await session.state() for session in self._sessions]
        states = [*(state for state, _ in found), *self._states[len(found) :]]
        await self._look({pid for _, pid in found if pid is not None})
        async with self.inner.fork(1) as (forked,):
            yield CarryingSandbox(forked, states)

    async def _look(self, shells: set[int]) -> None:
        """Raise Busy if another process runs than these shells."""
        said = await self.inner.exec(["/bin/sh", "-c", _PROCESSES])
        own, *lines = said.output.splitlines()
        found = [line.removeprefix("/proc/").split(" ")[:3] for line in lines]
        ours = {1, int(own), *shells}
        ours |= {int(parent) for pid, _, parent in found if int(pid) in ours}  # the executor starts each by another one
        for pid, state, _ in found:
            if int(pid) not in ours and state not in "ZX":
                raise Busy(f"process {pid} runs in the background")


UNFORKABLE = (Busy, NotSupported, SandboxError)
"""Why a sandbox is not forked; it goes on as before."""
