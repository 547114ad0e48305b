"""A container started by crun: its trees, its end, and copies of its files, all without the Docker daemon."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace

from sandboxes.base import SandboxDied, SandboxError
from sandboxes.docker.crun.bundle import Bundle
from sandboxes.docker.crun.images import Image
from sandboxes.docker.crun.layers import has_all_layers, release_layers
from sandboxes.docker.crun.reset import can_reset, reset
from sandboxes.docker.crun.snapshot import freeze
from sandboxes.docker.crun.trees import read_tree, unpack_tree
from sandboxes.docker.executor.channel import Channel
from sandboxes.docker.executor.container import Container, Kind
from sandboxes.docker.executor.disk_usage import HostPaths
from sandboxes.shielding import finish
from sandboxes.trees import Reader, SelectingReader

logger = logging.getLogger(__name__)

_STOP_S = 60.0
_RENEW_S = 3.0
"""How long all processes may take to end when it is reset."""
_ENDING_S = 2.0
_KILLED = 128 + signal.SIGKILL
_ENDS = {70: "memory"} | dict.fromkeys((71, 132, 134, 135, 136, 139), "executor")
"""Exit statuses of the executor without memory, and in its other failures. Nobody outside ends it so."""


class CrunContainer(Container):
    """A container of crun's. keep: keeps it for others, or returns False."""

    def __init__(
        self,
        kind: Kind,
        name: str,
        channel: Channel,
        image: Image,
        stack: AsyncExitStack,
        bundle: Bundle,
        keep: Callable[[CrunContainer], Awaitable[bool]],
    ) -> None:
        super().__init__(kind, name, channel, image.config, stack, self._host_paths_of(bundle))
        self.bundle = bundle
        self.made_of = image.id
        self.lives = 1
        """How many have had it."""
        self._keep = keep
        self._forking = asyncio.Lock()
        self._quiesced = False

    @staticmethod
    def _host_paths_of(bundle: Bundle) -> HostPaths:
        return HostPaths((bundle.upper, *(layer.path for layer in bundle.written)), bundle.process.first)

    def is_intact(self) -> bool:
        return self.bundle.root < 0 or has_all_layers(self.bundle.directory.storage, self.bundle.stack)

    async def unpack(self, archive: bytes, target: str) -> None:
        with self._root() as root:
            await asyncio.to_thread(unpack_tree, root, archive, target)

    async def read_tree(
        self, target: str, make: Callable[[], Reader], skip: Collection[str] = (), most: int | None = None
    ) -> Reader:
        reader = make()
        with self._root() as root:
            await asyncio.to_thread(read_tree, root, target, SelectingReader(reader, target), skip)
        return reader

    @contextmanager
    def _root(self) -> Iterator[int]:
        """Keep its root directory for the block, whatever becomes of the sandbox meanwhile."""
        if self.bundle.root < 0:
            raise SandboxDied(f"sandbox {self.name} is gone: its block was left")
        root = os.dup(self.bundle.root)
        try:
            yield root
        finally:
            os.close(root)

    async def kill(self) -> None:
        self.bundle.process.kill()
        try:
            await self.bundle.process.wait(_STOP_S)
        except TimeoutError as error:
            raise SandboxError(f"sandbox {self.name} does not end") from error

    async def overran(self) -> str | None:
        if self._quiesced:
            return None
        if self.channel.alive:
            return await asyncio.to_thread(self.bundle.cgroup.reached_limit)
        try:
            code = await self.bundle.process.wait(_ENDING_S)
        except TimeoutError:
            return None
        return "memory" if code == _KILLED and self.bundle.was_killed_for_memory() else _ENDS.get(code)

    async def host_out_of_memory(self) -> bool:
        return not self._quiesced and self.bundle.was_killed_for_host()

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Kind]:
        if self._quiesced or not self.channel.alive:
            raise SandboxDied(f"sandbox {self.name} is gone and can't be forked")
        async with self._forking:
            snapshot = await finish(freeze(self.bundle))
            self.host_paths = self._host_paths_of(self.bundle)
        try:
            yield replace(self.kind, snapshot=snapshot)
        finally:
            await finish(release_layers(snapshot.stack))

    async def release(self) -> None:
        if not await finish(self._keep(self)):
            await self.discard()

    async def quiesce(self) -> bool:
        if not (self.kind.shared and self._can_be_reset):
            return False
        async with self._forking:
            return await finish(self._quiesce())

    async def _quiesce(self) -> bool:
        self.channel = self.channel.renew(self.name, "it was stopped")
        try:
            async with asyncio.timeout(_RENEW_S):
                await self.channel.reset(new_devices=False)
        except (SandboxError, OSError) as error:
            logger.info("Sandbox %s has to be killed: %s", self.name, error)
            return False
        self._quiesced = True
        return True

    @property
    def _can_be_reset(self) -> bool:
        return self.channel.alive and not self.channel.busy and can_reset(self.bundle)

    async def reset(self) -> bool:
        if not self._can_be_reset:
            return False
        async with self._forking:
            return await finish(self._reset())

    async def _reset(self) -> bool:
        self.channel = self.channel.renew(self.name)
        try:
            if not self._quiesced:  # then everything has ended
                async with asyncio.timeout(_RENEW_S):
                    await self.channel.reset(new_devices=False)
            await reset(self.bundle, len(self.kind.limits.allowed_hosts) > 0)
            self.host_paths = self._host_paths_of(self.bundle)
            async with asyncio.timeout(_RENEW_S):
                await self.channel.reset(new_devices=True)
        except (SandboxError, OSError) as error:
            logger.info("Another sandbox takes the place of %s: %s", self.name, error)
            return False
        self._quiesced = False
        return True
