"""Keeps sandboxes' writes within their limits on Docker daemons with a storage without quotas (overlay2 over ext4).

The Docker daemon walks a container's files to measure its writes, so this needs a reason. No sandbox can have
grown by more than the whole storage has filled up since its last measurement, and the storage's fill costs one system
call. If the fill can't be seen from here, every sandbox is measured in turn.

A file costs an inode, too, and a storage has a fixed number of them for its bytes: they are counted like bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from sandboxes.base import SandboxError, StorageFull
from sandboxes.docker.executor.container import Container
from sandboxes.docker.executor.disk_usage import DiskUsage
from sandboxes.shielding import stop

logger = logging.getLogger(__name__)

_TICK_S = 0.05
_BLIND_TICK_S = 1.0
_AT_LEAST_EVERY_S = 15.0
_ALL_EVERY_S = 1.0
_APART_S = 0.25
"""Seconds between two looks without another reason than time, so many sandboxes cost no more than some."""
_SLACK = 16 * 2**20
"""Bytes that a sandbox over its limit may write (to clean up, say) before its next measurement."""
_FULL = 4 * 2**20
"""Bytes of free storage below which sandboxes' writes may have failed."""
_OWN = 64 * 2**20
"""Bytes at which a sandbox counts as the one that has filled the storage."""
_FILES = 65_536
"""Files for every sandbox, at least."""


@dataclass(slots=True)
class _Measurement:
    """A container's last measurement: bytes written (more if its inodes have less room left), and the storage's lowest
    fill since. added: the time of the container's arrival."""

    written: int
    lowest_fill: int
    at: float
    added: float = 0.0

    def may_have_reached(self, limit: int, fill: int, now: float, every_s: float = _AT_LEAST_EVERY_S) -> bool:
        self.lowest_fill = min(self.lowest_fill, fill)
        left = max(limit - self.written, _SLACK)
        return fill - self.lowest_fill >= left or now - self.at > every_s


class DiskWatch:
    """A watch, used as `async with`. Kills everything in a container after writes beyond its limit.

    storage: the Docker daemon's directory on this host; None if it can't be seen from here.
    """

    def __init__(self, storage: Path | None) -> None:
        self._storage = storage
        self._per_file = _bytes_per_file(storage)
        self._containers: dict[Container, _Measurement] = {}
        # Of all containers together, so that a look at the storage costs the same however many they are.
        self._floor = self._low = sys.maxsize
        """The lowest fill that any of them has seen; the lowest since all were last gone through."""
        self._left = sys.maxsize
        """The fewest bytes that one of them may write before its next measurement."""
        self._gone_through = 0.0
        self._full_at = -math.inf
        """When the storage was last seen to be full."""
        self._last_fill = 0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> DiskWatch:
        self._task = asyncio.create_task(self._watch(), name="sandbox disk limits")
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._task is not None:
            await stop([self._task])

    def add(self, container: Container) -> None:
        fill = self._fill()
        now = time.monotonic()
        self._containers[container] = _Measurement(0, fill, now, now)
        self._floor = min(self._floor, fill)
        self._left = min(self._left, max(_limit(container), _SLACK))

    def drop(self, container: Container) -> None:
        self._containers.pop(container, None)

    @property
    def blind(self) -> bool:
        """Tell whether the storage can't be seen from here."""
        return self._storage is None

    def check_room(self) -> None:
        """Raise StorageFull if there is no room for a new container's files."""
        self._check_fill()
        if self._full_at >= time.monotonic() - _TICK_S:
            raise StorageFull(f"the Docker daemon's storage at {self._storage} is full; make room there")

    def check(self, container: Container) -> None:
        """Raise StorageFull if the storage was full during the life of a container that had not filled it: the
        container's writes failed by no fault of its own."""
        seen = self._containers.get(container)
        self._check_fill()
        if seen is not None and self._full_at >= seen.added and seen.written < _OWN:
            raise StorageFull(
                f"the Docker daemon's storage at {self._storage} was full while {container.name} was used"
            )

    def _check_fill(self) -> None:
        space = self._space()
        if space is not None and (space.f_bavail * space.f_frsize < _FULL or (space.f_files and not space.f_favail)):
            self._full_at = time.monotonic()

    def _fill(self) -> int:
        """Return the bytes in use on the storage, and its inodes as so many bytes: as last seen, or 0."""
        space = self._space()
        if space is not None:
            files = (space.f_files - space.f_ffree) * self._per_file
            self._last_fill = (space.f_blocks - space.f_bfree) * space.f_frsize + files
        return self._last_fill

    def _space(self) -> os.statvfs_result | None:
        """Return the storage's figures; None if it can't be seen. This may pass, so it must not end the watch."""
        with contextlib.suppress(OSError):
            return None if self._storage is None else os.statvfs(self._storage)
        return None

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S if self._storage is not None else _BLIND_TICK_S)
            self._check_fill()
            fill, now = self._fill(), time.monotonic()
            self._low = min(self._low, fill)
            may_have_reached = fill - min(self._floor, self._low) >= self._left
            if self._storage is None or may_have_reached or now - self._gone_through >= _ALL_EVERY_S:
                await self._check_all(fill, now)

    async def _check_all(self, fill: int, now: float) -> None:
        """Measure the containers possibly at their limits."""
        low, self._low, self._gone_through = self._low, sys.maxsize, now
        every_s = max(_AT_LEAST_EVERY_S, _APART_S * len(self._containers))
        for container, seen in list(self._containers.items()):
            # One that came meanwhile takes on what was before it, and is looked at too soon at worst.
            seen.lowest_fill = min(seen.lowest_fill, low)
            limit = _limit(container)
            if self._storage is None or seen.may_have_reached(limit, fill, now, every_s):
                # A container that is just going away, or a Docker daemon in trouble: others will say so.
                with contextlib.suppress(SandboxError, OSError):
                    await self._measure(container, seen, limit)
        self._floor = min((seen.lowest_fill for seen in self._containers.values()), default=sys.maxsize)
        left = (max(_limit(container) - seen.written, _SLACK) for container, seen in self._containers.items())
        self._left = min(left, default=sys.maxsize)

    async def _measure(self, container: Container, seen: _Measurement, limit: int) -> None:
        fill = self._fill()
        seen.at, seen.lowest_fill = time.monotonic(), fill
        found = await container.disk_usage()
        if self._containers.get(container, seen) is not seen:
            return  # it was reset meanwhile
        written = self._written_bytes(found, limit)
        if not found.whole:  # whoever has what can't be counted has too much
            written = max(written, limit + 1, seen.written + 1)
        grown, seen.written = written > seen.written, written
        if written > limit and grown:
            container.spoiled = True
            most = self._most_files(limit)
            what = f"{limit >> 20} MB" if found.files <= most else f"{most} files"
            logger.info("Sandbox %s has written more than its limit of %s", container.name, what)
            await container.channel.kill_everything(
                f"the disk limit of {what} is exceeded; every process was killed. Delete files to go on"
            )
            # What was written while that was found out is not the next command's doing.
            seen.written = max(written, self._written_bytes(await container.disk_usage(), limit))
            seen.lowest_fill = self._fill()

    def _most_files(self, limit: int) -> int:
        return max(_FILES, limit // self._per_file) if self._per_file else sys.maxsize

    def _written_bytes(self, found: DiskUsage, limit: int) -> int:
        """Return a container's written bytes; more, if its inodes have less room left."""
        if not self._per_file:
            return found.bytes
        return max(found.bytes, limit - (self._most_files(limit) - found.files) * self._per_file)


def _bytes_per_file(storage: Path | None) -> int:
    """Return the number of a storage's bytes for each inode; 0 if it makes inodes as needed, or can't be seen."""
    if storage is None:
        return 0
    space = os.statvfs(storage)
    return space.f_blocks * space.f_frsize // space.f_files if space.f_files else 0


def _limit(container: Container) -> int:
    return container.kind.limits.disk_mb * 2**20
