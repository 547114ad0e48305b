"""A container started by crun: its trees, its end, and copies of its files, all without the Docker daemon."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Protocol

from sandboxes.base import SandboxDied, SandboxError
from sandboxes.docker.channel import Channel
from sandboxes.docker.crun.anew import can_start_over, start_over
from sandboxes.docker.crun.box import Box
from sandboxes.docker.crun.fork import freeze
from sandboxes.docker.crun.images import Image
from sandboxes.docker.crun.layers import is_whole, let_go
from sandboxes.docker.crun.trees import pack_tree, unpack_tree
from sandboxes.docker.held import Places
from sandboxes.docker.machine import Kind, Machine
from sandboxes.shielding import finish

logger = logging.getLogger(__name__)

_STOP_S = 60.0
_RENEW_S = 3.0
"""How long all processes may take to end when it is reset."""
_ENDING_S = 2.0
_KILLED = 128 + signal.SIGKILL
_ENDS = {70: "memory"} | dict.fromkeys((71, 132, 134, 135, 136, 139), "executor")
"""Exit statuses of the executor without memory, and in its other failures. Nobody outside ends it so."""


class Keeper(Protocol):
    """Keeps machines for others."""

    async def keep(self, machine: CrunMachine) -> bool: ...


class CrunMachine(Machine):
    """A container of crun's."""

    def __init__(
        self, kind: Kind, name: str, channel: Channel, image: Image, stack: AsyncExitStack, box: Box, keeper: Keeper
    ) -> None:
        super().__init__(kind, name, channel, image.config, stack, self._places_of(box))
        self.box = box
        self.made_of = image.id
        self.lives = 1
        """How many have had it."""
        self._keeper = keeper
        self._forking = asyncio.Lock()
        self._rests = False

    @staticmethod
    def _places_of(box: Box) -> Places:
        return Places((box.upper, *(layer.path for layer in box.written)), box.container.first)

    def whole(self) -> bool:
        return self.box.root < 0 or is_whole(self.box.home.storage, self.box.stack)

    async def unpack(self, archive: bytes, target: str) -> None:
        with self._root() as root:
            await asyncio.to_thread(unpack_tree, root, archive, target)

    async def pack(self, target: str, max_bytes: int) -> bytes:
        with self._root() as root:
            return await asyncio.to_thread(pack_tree, root, target, max_bytes)

    @contextmanager
    def _root(self) -> Iterator[int]:
        """Keep its root directory for the block, whatever becomes of the sandbox meanwhile."""
        if self.box.root < 0:
            raise SandboxDied(f"sandbox {self.name} is gone: its block was left")
        root = os.dup(self.box.root)
        try:
            yield root
        finally:
            os.close(root)

    async def kill(self) -> None:
        self.box.container.kill()
        try:
            await self.box.container.ended(_STOP_S)
        except TimeoutError as error:
            raise SandboxError(f"sandbox {self.name} does not end") from error

    async def overran(self) -> str | None:
        if self._rests:
            return None
        if self.channel.alive:
            return await asyncio.to_thread(self.box.cgroup.full)
        try:
            code = await self.box.container.ended(_ENDING_S)
        except TimeoutError:
            return None
        return "memory" if code == _KILLED and self.box.was_taken() else _ENDS.get(code)

    @asynccontextmanager
    async def branching(self) -> AsyncIterator[Kind]:
        if self._rests or not self.channel.alive:
            raise SandboxDied(f"sandbox {self.name} is gone and can't be forked")
        async with self._forking:
            point = await finish(freeze(self.box))
            self.places = self._places_of(self.box)
        try:
            yield replace(self.kind, point=point)
        finally:
            await finish(let_go(point.stack))

    async def release(self) -> None:
        if not await finish(self._keeper.keep(self)):
            await self.discard()

    async def rest(self) -> bool:
        if not (self.kind.shared and self._can_be_renewed):
            return False
        async with self._forking:
            return await finish(self._rest())

    async def _rest(self) -> bool:
        self.channel = self.channel.succeeded(self.name, "it was stopped")
        try:
            async with asyncio.timeout(_RENEW_S):
                await self.channel.begin_anew(new_devices=False)
        except (SandboxError, OSError) as error:
            logger.info("Sandbox %s has to be killed: %s", self.name, error)
            return False
        self._rests = True
        return True

    @property
    def _can_be_renewed(self) -> bool:
        return self.channel.alive and not self.channel.busy and can_start_over(self.box)

    async def renew(self) -> bool:
        if not self._can_be_renewed:
            return False
        async with self._forking:
            return await finish(self._renew())

    async def _renew(self) -> bool:
        self.channel = self.channel.succeeded(self.name)
        try:
            if not self._rests:  # then everything has ended
                async with asyncio.timeout(_RENEW_S):
                    await self.channel.begin_anew(new_devices=False)
            await start_over(self.box, len(self.kind.limits.allowed_hosts) > 0)
            self.places = self._places_of(self.box)
            async with asyncio.timeout(_RENEW_S):
                await self.channel.begin_anew(new_devices=True)
        except (SandboxError, OSError) as error:
            logger.info("Another sandbox takes the place of %s: %s", self.name, error)
            return False
        self._rests = False
        return True
