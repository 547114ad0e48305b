"""Used sandboxes in the state of their start, for the next user of their kind.

One is kept if everything of its earlier life is known to be gone (`reset.py`), for a kind with a word for its users in
the spec. A sandbox is discarded instead if it was over a limit, fell silent, or has a part that can't be made again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

from sandboxes.docker.crun.container import CrunContainer
from sandboxes.docker.executor.container import Kind
from sandboxes.docker.pool import PoolLimits, has_room

logger = logging.getLogger(__name__)

_IDLE_S = 60.0
"""How long one waits for its next user."""
_MOST_LIVES = 100
"""After the last life the kernel gets back everything it has gathered for the sandbox."""


class Spares:
    """Keeps a few of all kinds; the oldest go for new ones. storage: the Docker daemon's directory."""

    def __init__(self, limits: PoolLimits, storage: Path) -> None:
        self._limits = limits
        self._storage = storage
        self._ready: dict[CrunContainer, asyncio.TimerHandle] = {}
        self._discarding: set[asyncio.Task[None]] = set()
        self._closed = False

    async def take(self, kind: Kind, made_of: str) -> CrunContainer | None:
        """Return one of a kind, if it answers, or None. made_of: the id of the image behind the kind's name."""
        for container in self._matching(kind, made_of):
            self._ready.pop(container).cancel()
            async with AsyncExitStack() as undo:  # also if the caller is cancelled: nobody else knows of it now
                undo.push_async_callback(container.discard)
                if await container.is_responsive():
                    container.lives += 1
                    undo.pop_all()
                    return container
        return None

    def _matching(self, kind: Kind, made_of: str) -> Iterator[CrunContainer]:
        while found := [one for one in self._ready if one.kind == kind and one.made_of == made_of]:
            yield found[-1]

    async def keep(self, container: CrunContainer) -> bool:
        """Keep a container without a user, if it is as good as new again. Returns whether it is kept."""
        if not self._can_keep(container) or not await container.reset() or self._closed:
            return False
        self._ready[container] = asyncio.get_running_loop().call_later(_IDLE_S, self._discard, container)
        while len(self._ready) > self._limits.used:
            self._discard(next(iter(self._ready)))
        return True

    def _can_keep(self, container: CrunContainer) -> bool:
        kind = container.kind
        if self._closed or not kind.shared or kind.snapshot is not None or not self._limits.used:
            return False
        if container.spoiled or container.lives >= _MOST_LIVES or container.bundle.cgroup.has_hit_limit():
            return False
        return has_room(self._limits, self._storage)

    def _discard(self, container: CrunContainer) -> None:
        self._ready.pop(container).cancel()
        task = asyncio.create_task(container.discard(), name="a sandbox that nobody wanted")
        self._discarding.add(task)
        task.add_done_callback(self._discarding.discard)

    async def close(self) -> None:
        """Discard all; none is kept from now on."""
        self._closed = True
        while self._ready:
            self._discard(next(iter(self._ready)))
        await asyncio.gather(*self._discarding)
