"""The container under a sandbox, whatever has started it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from sandboxes.base import Limits, SandboxError, SandboxSpec
from sandboxes.docker.executor.channel import Channel, Identity
from sandboxes.docker.executor.disk_usage import DiskUsage, HostPaths, disk_usage
from sandboxes.hosts import AllowList
from sandboxes.shielding import finish
from sandboxes.trees import Archive, Reader


@dataclass(frozen=True, slots=True)
class Kind:
    """The properties of a container: two of one kind can stand in for each other.

    snapshot: the first files of a forked sandbox; None for the image's.
    mounts: folders of this host for reading alone: each one's place in it, and the folder.
    shared: a word for its later users, as in `SandboxSpec`.
    """

    image: str
    limits: Limits
    switch_users: bool
    snapshot: object = None
    mounts: tuple[tuple[str, str], ...] = ()
    shared: str = ""

    @classmethod
    def of(cls, spec: SandboxSpec) -> Kind:
        """Return the kind of a spec. Raises ValueError if its allowed hosts are invalid."""
        AllowList.of(spec.limits.allowed_hosts)
        mounts = tuple((target, str(folder)) for target, folder in spec.mounts.items())
        return cls(spec.image, spec.limits, spec.switch_users, mounts=mounts, shared=spec.shared)


class Container(ABC):
    """A running container. A launcher makes an instance of its own subclass."""

    bounded = False
    """The storage itself limits its writes."""
    spoiled = False
    """It was over a limit, or silent: nobody else is to have it."""

    def __init__(
        self,
        kind: Kind,
        name: str,
        channel: Channel,
        image: Mapping[str, Any],
        stack: AsyncExitStack,
        host_paths: HostPaths | None = None,
    ) -> None:
        self.kind = kind
        self.name = name
        self.channel = channel
        self.image = image
        """The image's configuration as the Docker daemon tells it: Env, WorkingDir, User."""
        self.host_paths = host_paths
        """Its places on this host; None if they can't be seen."""
        self._stack = stack

    async def release(self) -> None:
        """Let go of it: discard it, or keep it for another of its kind. Never raises."""
        await self.discard()

    async def discard(self) -> None:
        """Close the stream and remove the container. Never raises; a failed removal is logged."""
        await finish(self._stack.aclose())

    def is_intact(self) -> bool:
        """Return whether all files of its start are there. Costs no more than a few system calls."""
        return True

    async def is_responsive(self, timeout_s: float = 2.0) -> bool:
        """Return whether the executor is there and well, with all files."""
        if not self.is_intact():
            return False
        try:
            async with asyncio.timeout(timeout_s):
                await self.channel.read("/", 0, Identity())
        except IsADirectoryError:
            return True
        except (SandboxError, TimeoutError, OSError):
            return False
        return True

    async def renew_lease(self) -> None:
        """Keep it from ending for want of a driver. Raises SandboxError."""
        await self.channel.renew_lease()

    async def disk_usage(self) -> DiskUsage:
        """Return its files' use of the disk. Raises SandboxError or OSError if it is unknown."""
        if self.host_paths is None:
            raise FileNotFoundError(f"{self.name} can't be looked at from here")
        return await disk_usage(self.host_paths)

    @abstractmethod
    async def unpack(self, archive: bytes, target: str) -> None:
        """Unpack a tar archive into an existing directory. Raises OSError for a path to nowhere."""

    async def pack(self, target: str, max_bytes: int) -> bytes:
        """Return a tree as a tar archive with names relative to it, as `Sandbox.download` tells."""
        archive = await self.read_tree(target, partial(Archive, target, max_bytes), most=max_bytes)
        return await asyncio.to_thread(archive.to_bytes)

    @abstractmethod
    async def read_tree(
        self, target: str, make: Callable[[], Reader], skip: Collection[str] = (), most: int | None = None
    ) -> Reader:
        """Give a tree's members to a reader, as `Sandbox.read_tree` tells. most: bytes that the reader takes."""

    @abstractmethod
    async def kill(self) -> None:
        """Kill everything in it, and return afterwards. An ended one is left alone."""

    @abstractmethod
    async def overran(self) -> str | None:
        """Return the limit at which it has ended or is silent, as `Sandbox.overran` does."""

    async def host_out_of_memory(self) -> bool:
        """Return whether its processes were provably killed for want of memory on the machine."""
        return False

    @abstractmethod
    def snapshot(self) -> AbstractAsyncContextManager[Kind]:
        """Keep its files in their present state, for the block. Yields the kind of containers with these files at
        their start."""

    async def quiesce(self) -> bool:
        """End everything in it, so it can still be kept; returns False if it has to be killed for this. Later
        requests to its old channel raise SandboxDied."""
        return False

    async def reset(self) -> bool:
        """Bring back the state of its start; returns False if another container has to take its place."""
        return False


class Starter(Protocol):
    """Starts containers, a few at a time."""

    @property
    def busy(self) -> bool:
        """Return whether a start would have to wait."""
        ...

    async def launch(self, kind: Kind) -> Container:
        """Start a container. Raises ImageMissing, SandboxTimeout, DaemonUnavailable, SandboxError; then nothing is
        left."""
        ...

    async def close(self) -> None:
        """Wait for all running starts; no new one begins."""
        ...
