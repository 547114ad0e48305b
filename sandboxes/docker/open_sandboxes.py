"""The running sandboxes of one Docker backend: opened, exchanged, forked, kept alive, and removed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from sandboxes.base import Sandbox, SandboxError, SandboxSpec, StorageFull
from sandboxes.docker.daemon.client import DaemonClient
from sandboxes.docker.daemon.reap import remove_owned
from sandboxes.docker.disk import DiskWatch
from sandboxes.docker.executor.channel import Identity
from sandboxes.docker.executor.container import Container, Kind, Starter
from sandboxes.docker.executor.doors import door_ports
from sandboxes.docker.executor.program import LEASE_S
from sandboxes.docker.executor.sandbox import DockerSandbox
from sandboxes.docker.images.store import ImageStore
from sandboxes.docker.pool import WarmPool
from sandboxes.owner import Owner

logger = logging.getLogger(__name__)

_ROOM_S = 5.0


class OpenSandboxes:
    """The sandboxes of an entered backend, and the tools for making them; leaving it removes them all."""

    def __init__(
        self,
        client: DaemonClient,
        starter: Starter,
        pool: WarmPool,
        disk: DiskWatch,
        images: ImageStore,
        owner: Owner,
    ) -> None:
        self.client = client
        self.starter = starter
        self.pool = pool
        self.disk = disk
        self.images = images
        self._owner = owner
        self._containers: set[Container] = set()
        self._going: set[asyncio.Task[None]] = set()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> OpenSandboxes:
        # On the way out: no more heartbeats and refills, no more starts, then everything is removed at once.
        self._stack.push_async_callback(self._remove_everything)
        self._stack.push_async_callback(self.starter.close)
        await self._stack.enter_async_context(self.disk)
        await self._stack.enter_async_context(self.pool)
        heart = asyncio.create_task(self._renew_leases(), name="sandbox lease")
        self._stack.callback(heart.cancel)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        return self._open(Kind.of(spec), spec)

    @asynccontextmanager
    async def _open(self, kind: Kind, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        if spec.workdir is not None and not spec.workdir.startswith("/"):
            raise ValueError(f"workdir must be an absolute path, got {spec.workdir!r}")
        sandbox = DockerSandbox(await self._acquire(kind, spec), spec, self)
        try:
            yield sandbox
            self.disk.check(sandbox.container)
        finally:
            await self._release(sandbox.container)

    async def check_room(self, container: Container) -> None:
        """Raise StorageFull if the storage of a Docker daemon elsewhere has no room for a container's next MiB."""
        if not self.disk.blind or container.bounded:
            return
        try:
            async with asyncio.timeout(_ROOM_S):
                await container.channel.write("/.atropos-room", bytes(2**20), 0o600, Identity())
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise StorageFull(f"the storage of the Docker daemon of {container.name} is full") from error
        except SandboxError:  # it may have ended, and is stopped all the same
            return

    async def exchange(self, container: Container, spec: SandboxSpec) -> Container:
        """Return the container as it was at its start, or else another in its place: then it goes in the background."""
        self.disk.check_room()
        if await container.reset():
            self.disk.drop(container)
            self.disk.add(container)
            await self._prepare(container, spec)
            return container
        container.spoiled = True
        new = await self._acquire(container.kind, spec)
        going = asyncio.create_task(self._release(container))
        self._going.add(going)
        going.add_done_callback(self._going.discard)
        return new

    @asynccontextmanager
    async def fork(self, container: Container, spec: SandboxSpec, count: int) -> AsyncIterator[Sequence[Sandbox]]:
        """Open `count` sandboxes with the container's files at their start."""
        self.disk.check_room()  # before anything is done to the container
        async with container.snapshot() as kind, AsyncExitStack() as stack:
            opening = [self._open(kind, spec) for _ in range(count)]
            boxes = await asyncio.gather(*(stack.enter_async_context(box) for box in opening), return_exceptions=True)
            for box in boxes:
                if isinstance(box, BaseException):
                    raise box
            yield [box for box in boxes if not isinstance(box, BaseException)]

    async def _acquire(self, kind: Kind, spec: SandboxSpec) -> Container:
        self.disk.check_room()
        container = await self.pool.take(kind) or await self.starter.launch(kind)
        self._containers.add(container)
        if not container.bounded:
            self.disk.add(container)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._release, container)
            undo.callback(setattr, container, "spoiled", True)
            await self._prepare(container, spec)
            undo.pop_all()
        return container

    async def _prepare(self, container: Container, spec: SandboxSpec) -> None:
        # What an image declares as volumes is there even where none of its layers has it.
        for folder in (*(container.image.get("Volumes") or ()), *([spec.workdir] if spec.workdir else [])):
            await container.channel.make_directory(folder, Identity())
        for port, door in zip(door_ports(spec).values(), spec.doors.values(), strict=True):
            await container.channel.open_door(port, door)

    async def _release(self, container: Container) -> None:
        self._containers.discard(container)
        self.disk.drop(container)
        await container.release()

    async def _renew_leases(self) -> None:
        while True:
            await asyncio.sleep(LEASE_S / 5)
            for container in [*self._containers, *self.pool.containers()]:
                with contextlib.suppress(SandboxError):  # the next caller gets this error
                    await container.channel.renew_lease()

    async def _remove_everything(self) -> None:
        try:
            await remove_owned(self.client, self._owner.id)
        except SandboxError as error:
            logger.warning("%s; `python -m sandboxes reap` removes what is left once this process has ended", error)
