"""A container that crun has started: its trees, its end, and copies of its files, all without the Docker daemon."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

from sandboxes.base import SandboxDied, SandboxError
from sandboxes.docker.channel import Channel
from sandboxes.docker.crun.box import Box
from sandboxes.docker.crun.fork import freeze
from sandboxes.docker.crun.layers import let_go
from sandboxes.docker.crun.trees import pack_tree, unpack_tree
from sandboxes.docker.held import Places
from sandboxes.docker.machine import Kind, Machine
from sandboxes.shielding import finish

logger = logging.getLogger(__name__)

_STOP_S = 60.0
_ENDING_S = 2.0
_ENDS = {70: "memory"} | dict.fromkeys((71, 132, 134, 135, 136, 139), "executor")
"""How the executor ends where it can get no memory, and where it fails otherwise. Nobody outside ends it so."""


class CrunMachine(Machine):
    """A container of crun's."""

    def __init__(
        self, kind: Kind, name: str, channel: Channel, image: Mapping[str, Any], stack: AsyncExitStack, box: Box
    ) -> None:
        super().__init__(kind, name, channel, image, stack, self._places_of(box))
        self.box = box
        self._forking = asyncio.Lock()

    @staticmethod
    def _places_of(box: Box) -> Places:
        return Places((box.upper, *(layer.path for layer in box.written)), box.container.first)

    async def unpack(self, archive: bytes, target: str) -> None:
        await asyncio.to_thread(unpack_tree, self.box.root, archive, target)

    async def pack(self, target: str, max_bytes: int) -> bytes:
        if self.box.root < 0:
            raise SandboxDied(f"sandbox {self.name} is gone: its block was left")
        return await asyncio.to_thread(pack_tree, self.box.root, target, max_bytes)

    async def kill(self) -> None:
        self.box.container.kill()
        try:
            await self.box.container.ended(_STOP_S)
        except TimeoutError as error:
            raise SandboxError(f"sandbox {self.name} does not end") from error

    async def overran(self) -> str | None:
        if self.channel.alive:
            return await asyncio.to_thread(self.box.cgroup.full)
        try:
            return _ENDS.get(await self.box.container.ended(_ENDING_S))
        except TimeoutError:
            return None

    @asynccontextmanager
    async def branching(self) -> AsyncIterator[Kind]:
        if not self.channel.alive:
            raise SandboxDied(f"sandbox {self.name} is gone and can't be forked")
        async with self._forking:
            point = await finish(freeze(self.box))
            self.places = self._places_of(self.box)
        try:
            yield replace(self.kind, point=point)
        finally:
            await finish(let_go(point.stack))
