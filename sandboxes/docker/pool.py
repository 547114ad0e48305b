"""Containers started ahead of their use."""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections import Counter, OrderedDict, deque
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from sandboxes.base import SandboxError
from sandboxes.docker.executor.container import Container, Kind, Starter
from sandboxes.shielding import stop

logger = logging.getLogger(__name__)

_REFILLERS = 2


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """How many containers may stand ready.

    each: of every kind in recent use; 0 for no pool, but for the sandboxes that `prepare` names.
    total: of all kinds together.
    used: of all kinds together, of used ones (`SandboxSpec.shared`); 0 for none. They are taken if
        the pool has none, and stay for a minute.
    free_memory_mb, free_disk_mb: none is added while this host has less free; they are looked up here, so for a
        Docker daemon elsewhere only the counts hold.
    """

    each: int = 0
    total: int = 32
    used: int = 16
    free_memory_mb: int = 1024
    free_disk_mb: int = 4096


class WarmPool:
    """Holds started containers; used as `async with`. A few are started at a time, while nobody waits for one."""

    def __init__(self, starter: Starter, limits: PoolLimits, storage: Path | None) -> None:
        self._starter = starter
        self._limits = limits
        self._storage = storage
        self._wanted: OrderedDict[Kind, int] = OrderedDict()
        self._idle: dict[Kind, deque[Container]] = {}
        self._changed = asyncio.Event()
        self._starting: Counter[Kind] = Counter()
        self._refillers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> WarmPool:
        self._refillers = [asyncio.create_task(self._refill(), name="sandbox pool") for _ in range(_REFILLERS)]
        return self

    async def __aexit__(self, *exc: object) -> None:
        await stop(self._refillers)
        containers = self.containers()
        self._idle.clear()
        await asyncio.gather(*(container.discard() for container in containers))

    def prepare(self, kind: Kind, count: int) -> None:
        """Have `count` of this kind ready as soon as possible."""
        self._wanted[kind] = max(count, self._wanted.get(kind, 0))
        self._wanted.move_to_end(kind)
        self._changed.set()

    async def take(self, kind: Kind) -> Container | None:
        """Return one if it stands ready and answers, or None. Its place is filled again."""
        if self._limits.each and kind not in self._wanted and kind.snapshot is None:
            self._wanted[kind] = self._limits.each
        if kind not in self._wanted:
            return None
        self._wanted.move_to_end(kind)
        self._wanted[kind] = min(self._wanted[kind], max(self._limits.each, self._wanted[kind] - 1))
        self._changed.set()
        idle = self._idle.get(kind, deque())
        while idle:
            container = idle.popleft()
            async with AsyncExitStack() as undo:  # also if the caller is cancelled: nobody else knows of it now
                undo.push_async_callback(container.discard)
                if await container.is_responsive():
                    undo.pop_all()
                    return container
                logger.info("Sandbox %s did not survive in the pool", container.name)
        return None

    def ready(self, kind: Kind) -> int:
        """Return how many stand ready."""
        return len(self._idle.get(kind, ()))

    def containers(self) -> list[Container]:
        return [container for idle in self._idle.values() for container in idle]

    async def _refill(self) -> None:
        while True:
            self._changed.clear()
            kind = self._next_kind()
            if kind is None or self._starter.busy or not has_room(self._limits, self._storage):
                try:
                    await asyncio.wait_for(self._changed.wait(), None if kind is None else 0.1)
                except TimeoutError:
                    continue
                continue
            try:
                self._starting[kind] += 1
                await self._make_room()
                container = await self._starter.launch(kind)
            except (SandboxError, OSError) as error:  # this process may be out of descriptors
                logger.warning("No sandbox of image %s for the pool: %s", kind.image, error)
                self._wanted.pop(kind, None)  # until someone asks for one again, and gets the error
                continue
            finally:
                self._starting[kind] -= 1
            self._idle.setdefault(kind, deque()).append(container)

    def _next_kind(self) -> Kind | None:
        """Return the most recently wanted kind with too few ready."""
        ahead = 0
        for kind, count in reversed(self._wanted.items()):
            have = self.ready(kind) + self._starting[kind]
            if have < min(count, self._limits.total - ahead):
                return kind
            ahead += have
        return None

    async def _make_room(self) -> None:
        """Drop containers of the kind requested longest ago, so the total keeps its bound."""
        while sum(map(len, self._idle.values())) + self._starting.total() > self._limits.total and any(
            self._idle.values()
        ):
            oldest = next(kind for kind in [*self._wanted, *self._idle] if self._idle.get(kind))
            await self._idle[oldest].popleft().discard()
            self._wanted.pop(oldest, None)


def has_room(limits: PoolLimits, storage: Path | None) -> bool:
    """Return whether this host has the required free resources. storage: the Docker daemon's directory, if it is
    here."""
    if _available_memory_mb() < limits.free_memory_mb:
        return False
    if storage is None:
        return True
    try:
        space = os.statvfs(storage)
    except OSError:  # it can't be seen for now
        return False
    return space.f_bavail * space.f_frsize >> 20 >= limits.free_disk_mb


def _available_memory_mb() -> float:
    """Return this host's available memory without swapping, in MiB; infinite if it does not say."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except FileNotFoundError:
        return math.inf
    return int(text.partition("MemAvailable:")[2].split()[0]) / 1024
