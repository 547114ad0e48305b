"""A container whose trees are read and written by programs of ours in it, beside its process 1."""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from sandboxes.base import MOST_READ, NotSupported, SandboxDied, SandboxError
from sandboxes.docker.executor.container import Container, Kind
from sandboxes.docker.executor.trees import end_of_records, read_records, records_of
from sandboxes.shielding import finish
from sandboxes.trees import Reader, SelectingReader

TOOL_S = 600.0
"""How long a tool may take: a server may go on saying that it runs."""


class ToolContainer(Container):
    """Its trees are moved while nothing else in it does. A subclass runs the executor's tools (`pod.c`) in it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._files = asyncio.Lock()
        self._left = False
        """Whether it was given up: it may run for a moment more."""

    async def discard(self) -> None:
        self._left = True
        await super().discard()

    async def run(self, *command: str, stdin: bytes = b"", most: int = 1 << 20) -> bytes:
        """Run a tool in the container; return its output. It may run twice if the way there fails.

        Raises SandboxDied, SandboxError, ValueError for more than `most` bytes."""
        if self._left:
            raise SandboxDied(f"sandbox {self.name} is gone: its block was left")
        return await self._run(command, stdin, most)

    @abstractmethod
    async def _run(self, command: tuple[str, ...], stdin: bytes, most: int) -> bytes: ...

    async def unpack(self, archive: bytes, target: str) -> None:
        records = await asyncio.to_thread(records_of, archive)
        async with self._suspend_processes():
            output = await self.run("unpack", target, stdin=records)
        end_of_records(output, target)

    async def read_tree(
        self, target: str, make: Callable[[], Reader], skip: Collection[str] = (), most: int | None = None
    ) -> Reader:
        # A last name alone may be a link: it is what is requested.
        source = target if target.endswith(("/", "/.")) else posixpath.normpath(posixpath.join("/", target))
        most = MOST_READ if most is None else most
        async with self._suspend_processes():
            records = await self.run("pack", source, str(most), most=2 * most + (1 << 20))
        reader = make()
        await asyncio.to_thread(read_records, records, target, SelectingReader(reader, target, skip), most)
        return reader

    @asynccontextmanager
    async def _suspend_processes(self) -> AsyncIterator[None]:
        """Let nothing in the sandbox move for the block."""
        async with self._files:
            if not self.channel.alive or not self.channel.has_run:
                yield
                return
            with self.channel.hold_requests():
                with contextlib.suppress(SandboxDied):  # then nothing moves
                    if not await self.channel.pause_processes():
                        await self.channel.kill_everything("it could not stand still while files were moved")
                try:
                    yield
                finally:
                    with contextlib.suppress(SandboxError):
                        await finish(self.channel.resume_processes())

    async def kill(self) -> None:
        try:
            await self.run("kill")
        except SandboxDied:  # nothing runs in it
            return

    def snapshot(self) -> AbstractAsyncContextManager[Kind]:
        raise NotSupported("its files can't be copied to others, so it can't be forked: open other sandboxes")
