"""A container started by the Docker daemon, and all the daemon's work for it."""

from __future__ import annotations

import asyncio
import errno
import io
import logging
import os
import re
import tarfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import aiodocker
import aiodocker.containers

from sandboxes.base import DaemonError, SandboxDied, SandboxError
from sandboxes.docker.daemon.archive import read_body
from sandboxes.docker.daemon.client import DaemonClient, daemon_errors
from sandboxes.docker.daemon.reap import is_ending, remove_image
from sandboxes.docker.executor.channel import Channel
from sandboxes.docker.executor.container import Container, Kind
from sandboxes.docker.executor.disk_usage import DiskUsage, HostPaths
from sandboxes.docker.executor.memory import killed_below_limit
from sandboxes.docker.executor.program import ENDS
from sandboxes.docker.kernel_log import KernelLog
from sandboxes.shielding import finish
from sandboxes.trees import Reader, RebasingReader, SelectingReader, TreeReader, check_archive

logger = logging.getLogger(__name__)

_STATE_S = 10.0
"""How long the Docker daemon may take to report a container's state."""
_ENDING_S = 2.0
"""By how much the Docker daemon hears later of a container's end."""
_STOP_S = 60.0
_TREE_S = 600.0
"""How long the Docker daemon may take over a tree."""
_COPY_S = 600.0
_WHITEOUT, _DELETED = "/.wh.", 2
"""How names of deleted files begin in an image's layer, and the kind of a change for a deletion."""
_READS = 6
"""How often a tree is read while it changes."""
_FREEZES = 10
"""How often freezing is tried; it fails now and then while processes wait for the disk."""
_LATE_S = 10.0
"""How long the Docker daemon may take a container for paused, or for moving, that no longer is, in seconds: it hears
of each pause and of its end from containerd too, later."""
_ERRNOS = {
    "too many (links|levels of symbolic links)": errno.ELOOP,
    "not a directory": errno.ENOTDIR,
    "file name too long": errno.ENAMETOOLONG,
    # In Docker's words, Podman's, and those of Docker from 28 on.
    "(processing tar file|copier: put|linkat ).*no such file": errno.ENOENT,
    "copier: put.*file exists": errno.EEXIST,
    "(processing tar file|copier: put|linkat ).*operation not permitted": errno.EPERM,
}
"""The Docker daemon's messages about a path in a container, in lower case."""
_FULL = 0.97
"""The share of its memory at which a container counts as at its limit."""


class DaemonContainer(Container):
    """A container of the Docker daemon's.

    labels: of the images made of it.
    """

    def __init__(
        self,
        kind: Kind,
        name: str,
        handle: aiodocker.containers.DockerContainer,
        channel: Channel,
        image: Mapping[str, Any],
        stack: AsyncExitStack,
        *,
        client: DaemonClient,
        labels: Mapping[str, str],
        log: KernelLog,
        host_paths: HostPaths | None = None,
        quota: bool = False,
    ) -> None:
        super().__init__(kind, name, channel, image, stack, host_paths)
        self.handle = handle
        # Of volumes no quota knows, nor of the names of hosts that come with a network.
        self.bounded = quota and not image.get("Volumes") and not kind.limits.network
        self._client = client
        self._labels = labels
        self._log = log
        self._files = asyncio.Lock()
        """Held while files are moved or copied: the end of one such work lets processes go, but another still needs
        them to stand still."""

    async def disk_usage(self) -> DiskUsage:
        try:
            return await super().disk_usage()
        except OSError as error:
            if self.host_paths is not None:
                logger.debug("%s can't be looked at from here: %r", self.name, error)
            self.host_paths = None
        async with daemon_errors(f"ask how much {self.name} has written", 30):
            path = f"containers/{self.handle.id}/json"
            size = (await self._client._query_json(path, params={"size": "1"})).get("SizeRw")
        return DiskUsage(int(size or 0), 0)

    async def unpack(self, archive: bytes, target: str) -> None:
        await asyncio.to_thread(check_archive, archive)
        async with daemon_errors(f"upload to {target} in sandbox {self.name}", _TREE_S):
            for last in (False, False, True):
                try:
                    async with self._suspend_processes():
                        # As a file, which is sent piece by piece: a large body at once holds the event loop up.
                        await self.handle.put_archive(target, io.BytesIO(archive))  # type: ignore[no-untyped-call]  # aiodocker's gap
                    return
                except aiodocker.DockerError as error:
                    _raise_callers_mistake(error, target)
                    # Podman's, where what unpacks has come to the archive's end before all of it was written.
                    if last or "broken pipe" not in str(error.message).lower():
                        raise

    async def read_tree(
        self, target: str, make: Callable[[], Reader], skip: Collection[str] = (), most: int | None = None
    ) -> Reader:
        doing = f"download {target} from sandbox {self.name}"
        for _ in range(_READS):
            reader = make()
            async with daemon_errors(doing, _TREE_S), self._suspend_processes():
                failure = await self._read(target, RebasingReader(SelectingReader(reader, target, skip), target))
            if failure is None:
                return reader
            if not isinstance(failure, tarfile.TarError):
                raise failure
            # Its engine can't pause it, and a file became shorter meanwhile.
            logger.debug("%s has given a broken archive of %s: %r", self.name, target, failure)
        raise DaemonError(f"{target} in sandbox {self.name} changes faster than it can be read")

    @asynccontextmanager
    async def _suspend_processes(self) -> AsyncIterator[None]:
        """Let nothing in the container move for the block. The Docker daemon looks at a file, then opens it: if a
        pipe took its place meanwhile, the daemon would wait for ever, with all users of this container."""
        async with self._files:
            with self.channel.hold_requests():
                if not self.channel.has_run:
                    yield
                    return
                paused = False
                try:
                    paused = await self._pause()
                    if not paused:
                        await self._stop_processes()
                    yield
                finally:
                    await finish(self._unpause(paused=paused))
                    if not paused:
                        with suppress(SandboxError):
                            await finish(self.channel.resume_processes())

    async def _stop_processes(self) -> None:
        with suppress(SandboxDied):  # then nothing moves
            if not await self.channel.pause_processes():
                await self.channel.kill_everything("it could not stand still while files were moved, so it was killed")
                await self.channel.pause_processes()  # answered when nothing is left

    async def _pause(self) -> bool:
        """Pause the container, if it runs and its engine can pause. Returns whether its engine can."""
        failures, until = 0, time.monotonic() + _LATE_S
        while failures < _FREEZES:
            try:
                await finish(self.handle.pause())
                return True
            except aiodocker.DockerError as error:
                message = str(error.message).lower()
                if "already paused" in message and time.monotonic() < until:
                    await asyncio.sleep(0.05)
                    continue
                if "freeze" not in message and "cgroup" not in message:
                    return True  # it has ended
                logger.debug("%s can't be paused: %r", self.name, error)
                if "not configured" in message or "cgroup" in message:  # without control groups there is no freezer
                    break
                failures += 1
        return False

    async def _unpause(self, *, paused: bool) -> None:
        """End a pause, also one of which the Docker daemon does not know yet: else it would last for ever."""
        until = time.monotonic() + _LATE_S
        while True:
            try:
                await self.handle.unpause()
                return
            except aiodocker.DockerError as error:
                unknown = "not paused" in str(error.message).lower() and time.monotonic() < until
                if not (paused and unknown and await self._is_running()):
                    return
            await asyncio.sleep(0.05)

    async def _is_running(self) -> bool:
        with suppress(aiodocker.DockerError):
            return bool((await self.handle.show())["State"]["Running"])
        return False

    async def _read(self, target: str, reader: TreeReader) -> Exception | None:
        """Give the Docker daemon's archive of `target` to a reader, while it comes. Returns what the archive or the
        reader is at fault for; the Docker daemon's faults are raised."""
        request = self.handle.docker._query(f"containers/{self.handle.id}/archive", params={"path": target})
        try:
            async with request as response:
                return await read_body(response, reader, target)
        except aiodocker.DockerError as error:
            _raise_callers_mistake(error, target)
            raise

    async def kill(self) -> None:
        async with daemon_errors(f"stop sandbox {self.name}", _STOP_S):
            try:
                await self.handle.kill()
            except aiodocker.DockerError as error:
                if error.status != 409 and not is_ending(error):  # not running any more
                    raise
            await self.handle.wait()

    async def overran(self) -> str | None:
        try:
            async with daemon_errors(f"ask what became of sandbox {self.name}", _STATE_S):
                state = (await self.handle.show())["State"]
                patience = time.monotonic() + _ENDING_S
                while state["Running"] and not self.channel.alive and time.monotonic() < patience:
                    await asyncio.sleep(0.1)
                    state = (await self.handle.show())["State"]
                if state["Running"] and not state["Paused"]:
                    return reached_limit(await self.handle.stats(stream=False))
                # The daemon calls a kill for want of memory on the machine the container's own, too.
                return None if await self.host_out_of_memory() else fatal_limit(state)
        except SandboxError:
            return None

    async def host_out_of_memory(self) -> bool:
        return self._log.was_killed_for_host(self.handle.id) or await killed_below_limit(self.channel)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Kind]:
        image = f"atropos-fork:{uuid.uuid4().hex}"
        try:
            await finish(self._commit(image))
            yield replace(self.kind, image=image)
        finally:
            try:
                await finish(remove_image(self._client, image))
            except SandboxError as error:
                logger.warning("%s", error)

    async def _commit(self, image: str) -> None:
        name, _, tag = image.partition(":")
        params = {"container": self.handle.id, "repo": name, "tag": tag, "pause": "0"}
        # What the container was started with would otherwise take the place of what its image says.
        config = {"WorkingDir": "", "User": ""} | dict(self.image)
        config["Labels"] = {**(self.image.get("Labels") or {}), **self._labels}
        doing = f"copy the files of sandbox {self.name}"
        async with daemon_errors(doing, _COPY_S), self._suspend_processes():
            await self._refuse_whiteouts()
            await self._client._query_json("commit", method="POST", params=params, data=config)

    async def _refuse_whiteouts(self) -> None:
        """Raise SandboxError for names with an image's mark of deleted files: in the copy those files would be gone."""
        changes = await self._client._query_json(f"containers/{self.handle.id}/changes")
        for change in changes or ():
            if _WHITEOUT in change["Path"] and change["Kind"] != _DELETED:
                raise SandboxError(f"{self.name} can't be copied to an image, for the name of {change['Path']!r}")


def _raise_callers_mistake(error: aiodocker.DockerError, target: str) -> None:
    """Raise the OSError behind the Docker daemon's answer about a path, if there is one."""
    message = str(error.message).lower()
    if error.status == 404 and "no such container" not in message:
        raise FileNotFoundError(errno.ENOENT, "no such file or directory in the sandbox", target) from error
    for words, number in _ERRNOS.items():
        if re.search(words, message):
            raise OSError(number, os.strerror(number), target) from error


def fatal_limit(state: Mapping[str, Any]) -> str | None:
    """Return the limit at which a container has ended, by the Docker daemon's report; None for none."""
    return "memory" if state["OOMKilled"] else ENDS.get(state["ExitCode"])


def reached_limit(stats: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the limit that a running container is at, by the Docker daemon's statistics; None for none."""
    now = stats[0] if stats else {}
    memory, pids = now.get("memory_stats") or {}, now.get("pids_stats") or {}
    pages = memory.get("stats") or {}
    # What files have in memory is given up when it is needed.
    cached = sum(pages.get(f"total_{name}", pages.get(name, 0)) for name in ("active_file", "inactive_file"))
    if memory.get("limit") and memory.get("usage", 0) - cached >= _FULL * memory["limit"]:
        return "memory"
    if pids.get("limit") and pids.get("current", 0) >= pids["limit"]:
        return "processes"
    return None
