"""Backends whose sandboxes somebody else's server starts, with the executor in each."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from sandboxes.base import Backend, Door, NotSupported, Sandbox, SandboxError, SandboxSpec
from sandboxes.docker.executor.channel import Channel, Identity
from sandboxes.docker.executor.connection import Attach, Connection, Runs
from sandboxes.docker.executor.container import Container, Kind
from sandboxes.docker.executor.doors import door_ports
from sandboxes.docker.executor.program import LEASE_S
from sandboxes.docker.executor.proxy import tunnels_of
from sandboxes.docker.executor.sandbox import DockerSandbox
from sandboxes.docker.executor.tools import ToolContainer
from sandboxes.owner import Owner
from sandboxes.remote.api import Api
from sandboxes.remote.images import NamedImages
from sandboxes.shielding import finish, run_concurrently

logger = logging.getLogger(__name__)

GREET_S = 30.0
"""Longest wait for an executor's greeting."""
RENEWALS = 16
"""Simultaneous renewals: one after the other, those of many sandboxes would take longer than their leases."""


class RemoteBackend(Backend):
    """A subclass launches containers. It runs `renew_leases` while it is entered, and has `_stack` undo its entry.

    owner: its id is in the label `atropos-agent.owner` of the server's sandboxes. remains: what becomes of sandboxes
    that can't be removed at the end, in words."""

    remains: ClassVar[str]

    def __init__(self, images: NamedImages) -> None:
        self._images = images
        self.owner = Owner.of_this_process()
        self._stack = AsyncExitStack()
        self._open_ones: set[Container] = set()
        self._going: set[asyncio.Task[None]] = set()

    async def __aexit__(self, *exc: object) -> None:
        try:
            await finish(self._stack.aclose())
        except SandboxError as error:
            logger.warning("%s; %s", error, self.remains)

    @abstractmethod
    async def launch(self, kind: Kind) -> ToolContainer:
        """Start a container. Raises SandboxError; then nothing is left."""

    async def ensure_image(self, name: str | None, context: Path | None = None) -> str:
        """Return a name for `open`. Raises ImageUnbuildable, also for a Dockerfile without a way to build it; a
        missing image by name shows when its first sandbox starts."""
        return await self._images.ensure(name, context)

    def unbuildable(self, context: Path) -> str | None:
        return self._images.unbuildable(context)

    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        if spec.workdir is not None and not spec.workdir.startswith("/"):
            raise ValueError(f"workdir must be an absolute path, got {spec.workdir!r}")
        sandbox = DockerSandbox(await self._acquire(Kind.of(spec), spec), spec, self)
        try:
            yield sandbox
        finally:
            await self._release(sandbox.container)

    async def _acquire(self, kind: Kind, spec: SandboxSpec) -> ToolContainer:
        if kind.mounts:
            raise NotSupported("there are no folders of this host; upload their files, or put them into the image")
        image, files = self._images.parts(kind.image)
        new = await self.launch(replace(kind, image=image))
        self._open_ones.add(new)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._release, new)
            workdir = spec.workdir or str(new.image["WorkingDir"])
            if spec.workdir or files:
                await new.channel.make_directory(workdir, Identity())
            if files:
                await new.unpack(files, str(new.image["WorkingDir"]))
            for port, door in zip(door_ports(spec).values(), spec.doors.values(), strict=True):
                await new.channel.open_door(port, door)
            undo.pop_all()
        new.kind = kind
        return new

    async def _release(self, container: Container) -> None:
        self._open_ones.discard(container)
        await container.release()

    async def renew_leases(self) -> None:
        """Keep open sandboxes from ending for want of a driver, until cancelled."""

        turn = asyncio.Semaphore(RENEWALS)

        async def renew(one: Container) -> None:
            with contextlib.suppress(SandboxError):  # the next caller gets this error
                async with turn:
                    await one.renew_lease()

        while True:
            await asyncio.sleep(LEASE_S / 5)
            await run_concurrently(map(renew, [*self._open_ones]))

    # What a sandbox asks of its backend

    async def check_room(self, container: Container) -> None:
        """Do nothing: whoever runs the machines watches their disks."""

    async def exchange(self, container: Container, spec: SandboxSpec) -> Container:
        """Return another container of the same kind; the old one goes in the background."""
        new = await self._acquire(container.kind, spec)
        going = asyncio.create_task(self._release(container))
        self._going.add(going)
        going.add_done_callback(self._going.discard)
        return new

    def fork(
        self, container: Container, spec: SandboxSpec, count: int
    ) -> AbstractAsyncContextManager[Sequence[Sandbox]]:
        raise NotSupported("this backend's sandboxes can't be forked; open other sandboxes and upload its files")


async def open_channel(
    stack: AsyncExitStack,
    kind: Kind,
    name: str,
    attach: Attach,
    is_running: Runs,
    *,
    api: Api,
    host: str,
    start_s: float,
    return_s: float,
) -> Channel:
    """Attach to a container's executor; `stack` closes the connection. start_s: for outages of the API meanwhile.
    The others are as those of `Connection`."""
    doors: dict[int, Door] = {}
    connection = Connection(name, attach, is_running, tunnels_of(kind.limits, doors), host=host, return_s=return_s)
    stack.push_async_callback(connection.close)
    await api.retry_inside(connection.attach, start_s)
    await connection.greet(GREET_S)
    return Channel(connection, doors)


async def query_image(channel: Channel) -> dict[str, Any]:
    """Return the WorkingDir and Env of an image as its container's first process knows them."""
    result = await channel.execute(
        ["/bin/sh", "-c", 'pwd -P; echo "$HOME"'],
        cwd=".",
        env={},
        identity=Identity(),
        stdin=b"",
        timeout=30.0,
        max_output=10_000,
    )
    channel.has_run = False
    workdir, home, *_ = [*result.output.splitlines(), "", ""]
    return {
        "WorkingDir": workdir if workdir.startswith("/") else "/",
        "Env": [] if home in ("", "/", "/root") else [f"HOME={home}"],
    }
