"""What a Docker sandbox is made of: a started container, whoever has started it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from sandboxes.base import Limits, SandboxError, SandboxSpec
from sandboxes.docker.channel import Channel, Identity
from sandboxes.docker.held import Held, Places, held
from sandboxes.hosts import AllowList
from sandboxes.shielding import finish


@dataclass(frozen=True, slots=True)
class Kind:
    """What makes a container: two of one kind can stand in for each other.

    point: the files that it begins with, of a sandbox that is forked; None for the image's.
    mounts: where folders of this machine stand in it, for reading alone, and which.
    shared: who may have it after others, as in `SandboxSpec`.
    """

    image: str
    limits: Limits
    switch_users: bool
    point: object = None
    mounts: tuple[tuple[str, str], ...] = ()
    shared: str = ""

    @classmethod
    def of(cls, spec: SandboxSpec) -> Kind:
        """Return the kind of a spec. Raises ValueError when the hosts that it allows are none."""
        AllowList.of(spec.limits.allowed_hosts)
        mounts = tuple((target, str(folder)) for target, folder in spec.mounts.items())
        return cls(spec.image, spec.limits, spec.switch_users, mounts=mounts, shared=spec.shared)


class Machine(ABC):
    """A running container. A subclass is made by the launcher that has started it."""

    bounded = False
    """The storage itself limits what is written."""
    spoiled = False
    """It was over a limit, or silent: nobody else is to have it."""

    def __init__(
        self,
        kind: Kind,
        name: str,
        channel: Channel,
        image: Mapping[str, Any],
        stack: AsyncExitStack,
        places: Places | None = None,
    ) -> None:
        self.kind = kind
        self.name = name
        self.channel = channel
        self.image = image
        """The image's configuration as the Docker daemon tells it: Env, WorkingDir, User."""
        self.places = places
        """Where it is on this machine; None where that can't be seen."""
        self._stack = stack

    async def release(self) -> None:
        """Let go of it: discard it, or keep it for another of its kind. Never raises."""
        await self.discard()

    async def discard(self) -> None:
        """Close the stream and remove the container. Never raises; what could not be removed is logged."""
        await finish(self._stack.aclose())

    def whole(self) -> bool:
        """Return whether the files that it was started with are all there. Costs no more than a few system calls."""
        return True

    async def answers(self, timeout_s: float = 2.0) -> bool:
        """Return whether the executor is there and well, with all files."""
        if not self.whole():
            return False
        try:
            async with asyncio.timeout(timeout_s):
                await self.channel.read("/", 0, Identity())
        except IsADirectoryError:
            return True
        except (SandboxError, TimeoutError, OSError):
            return False
        return True

    async def held(self) -> Held:
        """Return what its files take. Raises SandboxError or OSError where that can't be told."""
        if self.places is None:
            raise FileNotFoundError(f"{self.name} can't be looked at from here")
        return await held(self.places)

    @abstractmethod
    async def unpack(self, archive: bytes, target: str) -> None:
        """Unpack a tar archive into a directory that is there. Raises OSError for a path that leads nowhere."""

    @abstractmethod
    async def pack(self, target: str, max_bytes: int) -> bytes:
        """Return a tree as a tar archive with names relative to it, as `Sandbox.download` tells."""

    @abstractmethod
    async def kill(self) -> None:
        """Kill everything in it, and return when that is done. One that has ended is left as it is."""

    @abstractmethod
    async def overran(self) -> str | None:
        """Return the limit at which it has ended or is silent, as `Sandbox.overran` tells."""

    @abstractmethod
    def branching(self) -> AbstractAsyncContextManager[Kind]:
        """Keep its files as they are now, for the block. Yields the kind of machines that begin with them."""

    async def rest(self) -> bool:
        """End all that runs in it, so that it can still be kept; returns False where it has to be killed for that. What
        is asked of its channel of before raises SandboxDied."""
        return False

    async def renew(self) -> bool:
        """Bring back the state in which it was started; returns False where another machine has to take its place."""
        return False


class Starter(Protocol):
    """Starts machines, a few at a time."""

    @property
    def busy(self) -> bool:
        """Return whether a start would have to wait."""
        ...

    async def launch(self, kind: Kind) -> Machine:
        """Start a machine. Raises ImageMissing, SandboxTimeout, DaemonUnavailable, SandboxError; then nothing is
        left."""
        ...

    async def close(self) -> None:
        """Wait for starts that are under way; no new one begins."""
        ...
