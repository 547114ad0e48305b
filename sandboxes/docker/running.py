"""The running sandboxes of one Docker backend: opened, exchanged, forked, kept alive, and removed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from sandboxes.base import Sandbox, SandboxError, SandboxSpec
from sandboxes.docker.build import ImageStore
from sandboxes.docker.channel import Identity
from sandboxes.docker.container import DockerSandbox
from sandboxes.docker.daemon import DaemonClient, daemon_errors
from sandboxes.docker.disk import DiskWatch
from sandboxes.docker.launch import LEASE_S, Kind, Launcher, Machine
from sandboxes.docker.pool import WarmPool
from sandboxes.docker.reap import remove_image, remove_owned
from sandboxes.owner import Owner
from sandboxes.shielding import finish

logger = logging.getLogger(__name__)

_COPY_S = 600.0


class Running:
    """The sandboxes of a backend that was entered, and what they are made with; leaving it removes them all."""

    def __init__(
        self,
        client: DaemonClient,
        launcher: Launcher,
        pool: WarmPool,
        disk: DiskWatch,
        images: ImageStore,
        owner: Owner,
    ) -> None:
        self.client = client
        self.launcher = launcher
        self.pool = pool
        self.disk = disk
        self.images = images
        self._owner = owner
        self._machines: set[Machine] = set()
        self._going: set[asyncio.Task[None]] = set()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Running:
        # On the way out: no more heartbeats and refills, no more starts, then everything is removed at once.
        self._stack.push_async_callback(self._remove_everything)
        self._stack.push_async_callback(self.launcher.close)
        await self._stack.enter_async_context(self.disk)
        await self._stack.enter_async_context(self.pool)
        heart = asyncio.create_task(self._show_interest(), name="sandbox lease")
        self._stack.callback(heart.cancel)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        if spec.workdir is not None and not spec.workdir.startswith("/"):
            raise ValueError(f"workdir must be an absolute path, got {spec.workdir!r}")
        sandbox = DockerSandbox(await self._acquire(spec), spec, self)
        try:
            yield sandbox
        finally:
            await self._release(sandbox.machine)

    async def exchange(self, machine: Machine, spec: SandboxSpec) -> Machine:
        """Return another machine of the same kind in the place of this one, which goes in the background."""
        new = await self._acquire(spec)
        going = asyncio.create_task(self._release(machine))
        self._going.add(going)
        going.add_done_callback(self._going.discard)
        return new

    @asynccontextmanager
    async def fork(self, machine: Machine, spec: SandboxSpec, count: int) -> AsyncIterator[Sequence[Sandbox]]:
        """Open `count` sandboxes from an image that is made of the machine's files."""
        image = f"atropos-fork:{uuid.uuid4().hex}"
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._remove_image, image)
            await finish(self._commit(machine, image))
            opening = [self.open(replace(spec, image=image)) for _ in range(count)]
            boxes = await asyncio.gather(*(stack.enter_async_context(box) for box in opening), return_exceptions=True)
            for box in boxes:
                if isinstance(box, BaseException):
                    raise box
            yield [box for box in boxes if not isinstance(box, BaseException)]

    async def _commit(self, machine: Machine, image: str) -> None:
        name, _, tag = image.partition(":")
        params = {"container": machine.container.id, "repo": name, "tag": tag}
        # What the container was started with would otherwise take the place of what its image says.
        config = {"Labels": self._owner.labels(), "WorkingDir": "", "User": ""} | dict(machine.image)
        config["Labels"] = {**(machine.image.get("Labels") or {}), **self._owner.labels()}
        async with daemon_errors(f"copy the files of sandbox {machine.name}"), asyncio.timeout(_COPY_S):
            await self.client._query_json("commit", method="POST", params=params, data=config)

    async def _acquire(self, spec: SandboxSpec) -> Machine:
        kind = Kind.of(spec)
        machine = await self.pool.take(kind) or await self.launcher.launch(kind)
        self._machines.add(machine)
        if not self.launcher.quota or machine.has_volumes:  # of which no quota knows
            self.disk.add(machine)
        try:
            if spec.workdir is not None:
                await machine.channel.make_directory(spec.workdir, Identity())
        except BaseException:
            await self._release(machine)
            raise
        return machine

    async def _release(self, machine: Machine) -> None:
        self._machines.discard(machine)
        self.disk.drop(machine)
        await machine.discard()

    async def _show_interest(self) -> None:
        while True:
            await asyncio.sleep(LEASE_S / 5)
            for machine in [*self._machines, *self.pool.machines()]:
                with contextlib.suppress(SandboxError):  # whoever uses it next is told
                    await machine.channel.show_interest()

    async def _remove_image(self, image: str) -> None:
        try:
            await finish(remove_image(self.client, image))
        except SandboxError as error:
            logger.warning("%s", error)

    async def _remove_everything(self) -> None:
        try:
            await remove_owned(self.client, self._owner)
        except SandboxError as error:
            logger.warning("%s; `python -m sandboxes reap` removes what is left once this process has ended", error)
