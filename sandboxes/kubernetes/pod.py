"""A pod under a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from sandboxes.base import DaemonUnavailable, NotSupported, SandboxDied, SandboxError
from sandboxes.docker.executor.channel import Channel
from sandboxes.docker.executor.container import Container, Kind
from sandboxes.kubernetes.cluster import Cluster
from sandboxes.kubernetes.faults import BOX, end_of, limit_of
from sandboxes.kubernetes.manifest import PROGRAM
from sandboxes.kubernetes.trees import archive_of, end_of_records, records_of
from sandboxes.shielding import finish

_TREE_S = 600.0
_STATUS_S = 5.0
"""How long a kubelet may take over telling that a container has ended."""
_FULL = 0.97
_USAGE = {
    "memory": [
        ("memory.current", "memory.max"),
        ("memory/memory.usage_in_bytes", "memory/memory.limit_in_bytes"),
    ],
    "processes": [("pids.current", "pids.max"), ("pids/pids.current", "pids/pids.max")],
}


class PodContainer(Container):
    """A running pod. Its trees are read and written by programs of ours, started in its container by the cluster, while
    nothing else in it moves."""

    def __init__(
        self,
        kind: Kind,
        name: str,
        channel: Channel,
        image: Mapping[str, Any],
        stack: AsyncExitStack,
        *,
        cluster: Cluster,
        outage_s: float,
    ) -> None:
        super().__init__(kind, name, channel, image, stack)
        self._cluster = cluster
        self._outage_s = outage_s
        self._files = asyncio.Lock()
        self._left = False
        """Whether it was given up: its node may run it for a second more."""

    async def discard(self) -> None:
        self._left = True
        await super().discard()

    async def run(self, *command: str, stdin: bytes = b"", most: int = 1 << 20) -> bytes:
        """Run a program of ours in the container; return its output. It may run twice if the API server fails.

        Raises SandboxDied, SandboxError, ValueError for more than `most` bytes."""
        if self._left:
            raise SandboxDied(f"sandbox {self.name} is gone: its block was left")
        return await self._cluster.patiently(lambda: self._once(command, stdin, most), self._outage_s)

    async def _once(self, command: tuple[str, ...], stdin: bytes, most: int) -> bytes:
        try:
            stream = await self._cluster.exec(self.name, BOX, [PROGRAM, *command], stdin=bool(stdin))
        except SandboxError as error:
            await self._raise_end(error)
            raise
        out = bytearray()
        try:
            async with asyncio.timeout(_TREE_S):
                feeding = asyncio.create_task(stream.write(stdin))
                try:
                    while data := await stream.read():
                        out += data
                        if len(out) > most:
                            raise ValueError(f"{self.name}: more than {most} bytes")
                    code = stream.exit_code
                finally:
                    feeding.cancel()
                    await asyncio.wait({feeding})
        except (OSError, TimeoutError) as error:
            await self._raise_end(error)
            raise DaemonUnavailable(f"exec in {self.name} broke off: {error!r}") from error
        finally:
            await stream.close()
        if code is None:
            await self._raise_end(None)
            raise DaemonUnavailable(f"exec in {self.name} broke off without an exit code")
        if code:
            await self._raise_end(None)
            raise SandboxError(f"{command[0]} in {self.name} ended with {code}: {stream.error_text[:500]}")
        return bytes(out)

    async def _raise_end(self, cause: BaseException | None) -> None:
        with contextlib.suppress(DaemonUnavailable):
            if (gone := end_of(await self._shown())) is not None:
                raise type(gone)(f"sandbox {self.name} is gone: {gone}") from cause

    async def _shown(self) -> Any:
        try:
            return await self._cluster.request("GET", self._cluster.path("pods", self.name))
        except SandboxDied:
            return None

    async def unpack(self, archive: bytes, target: str) -> None:
        records = await asyncio.to_thread(records_of, archive)
        async with self._still():
            said = await self.run("unpack", target, stdin=records)
        end_of_records(said, target)

    async def pack(self, target: str, max_bytes: int) -> bytes:
        # A last name alone may be a link: it is what is asked for.
        asked = target if target.endswith(("/", "/.")) else posixpath.normpath("/" + target)
        async with self._still():
            records = await self.run("pack", asked, str(max_bytes), most=2 * max_bytes + (1 << 20))
        return await asyncio.to_thread(archive_of, records, target, max_bytes)

    @asynccontextmanager
    async def _still(self) -> AsyncIterator[None]:
        """Let nothing in the sandbox move for the block."""
        async with self._files:
            if not self.channel.alive or not self.channel.has_run:
                yield
                return
            with self.channel.held_back():
                with contextlib.suppress(SandboxDied):  # then nothing moves
                    if not await self.channel.stand_still():
                        await self.channel.kill_everything("it could not stand still while files were moved")
                try:
                    yield
                finally:
                    with contextlib.suppress(SandboxError):
                        await finish(self.channel.move_again())

    async def kill(self) -> None:
        try:
            await self.run("kill")
        except SandboxDied:  # nothing runs in it
            return

    async def overran(self) -> str | None:
        try:
            until = time.monotonic() + _STATUS_S
            while True:
                pod = await self._shown()
                if end_of(pod) is not None:
                    return limit_of(pod)
                if self.channel.alive:
                    return await self._full()
                if time.monotonic() > until:
                    return None
                await asyncio.sleep(0.1)
        except (SandboxError, ValueError):
            return None

    async def _full(self) -> str | None:
        """Return the limit that a running pod is at."""
        for limit, places in _USAGE.items():
            for pair in places:
                said = (await self.run("show", *(f"/sys/fs/cgroup/{name}" for name in pair))).split()
                if len(said) == 2 and said[1].isdigit() and int(said[0]) >= _FULL * int(said[1]):
                    return limit
        return None

    def snapshot(self) -> AbstractAsyncContextManager[Kind]:
        raise NotSupported("a pod's files can't be copied to others, so it can't be forked: open other sandboxes")
