"""Sandboxes in Docker containers, with an executor of ours as each container's main process.

Defaults: no network, no capabilities for commands, no new privileges, limits on processes, memory
(without swap), cpu and disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from sandboxes.base import Backend, Sandbox, SandboxError, SandboxSpec
from sandboxes.docker.build import ImageStore
from sandboxes.docker.channel import Identity
from sandboxes.docker.container import DockerSandbox
from sandboxes.docker.daemon import DaemonClient, connect, daemon_errors
from sandboxes.docker.disk import DiskWatch
from sandboxes.docker.launch import LEASE_S, Kind, Launcher, Machine
from sandboxes.docker.pool import PoolLimits, WarmPool
from sandboxes.docker.reap import reap_dead_owners, remove_image, remove_owned
from sandboxes.owner import Owner
from sandboxes.shielding import finish

logger = logging.getLogger(__name__)


class DockerBackend(Backend):
    """Containers of one Docker daemon.

    url: the Docker daemon's address (unix://, tcp://, ssh://); None takes what the Docker command line would take.
    max_starts: how many containers are created and started, or removed, at a time.
    base_image: replaces the image in the last `FROM` of Dockerfiles that `ensure_image` builds.
    start_timeout_s: how long one container may take from create to its executor's greeting.
    pool: how many containers may stand ready.
    runtime: what runs the containers: None for the Docker daemon's default, "runsc" for gVisor where it is installed.
    images_mb: what all images of the Docker daemon may take together; ours that are unused go when it is exceeded.
    shortcut: commands go past the Docker daemon where this process is root on its machine, which makes them quicker.
    """

    def __init__(
        self,
        *,
        url: str | None = None,
        max_starts: int = 8,
        base_image: str | None = None,
        start_timeout_s: float = 120.0,
        pool: PoolLimits | None = None,
        runtime: str | None = None,
        images_mb: int = 100_000,
        shortcut: bool = True,
    ) -> None:
        self._url = url
        self._base_image = base_image
        self._start_timeout_s = start_timeout_s
        self._max_starts = max_starts
        self._pool_limits = pool or PoolLimits()
        self._runtime = runtime
        self._images_mb = images_mb
        self._shortcut = shortcut
        self._owner = Owner.of_this_process()
        self._stack = AsyncExitStack()
        self._inner: _Entered | None = None

    @property
    def owner(self) -> Owner:
        """Return the owner, whose id is the value of the containers' label `atropos-agent.owner`."""
        return self._owner

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(connect(self._url))
            async with daemon_errors("ask the Docker daemon what it is"):
                info = await client.system.info()
                architecture = (await client.version())["Arch"]
            if missing := unlimited(info):
                logger.warning(
                    "This Docker daemon can't limit %s: sandboxes may take more than they should", ", ".join(missing)
                )
            storage = _storage(client, info)
            launcher = Launcher(
                client,
                self._owner,
                architecture,
                max_starts=self._max_starts,
                timeout_s=self._start_timeout_s,
                runtime=self._runtime,
                quota=_may_have_quotas(info),
                shortcut=self._shortcut and os.geteuid() == 0,
            )
            await reap_dead_owners(client)
            self._inner = await stack.enter_async_context(
                _Entered(
                    client,
                    launcher,
                    WarmPool(launcher, self._pool_limits, storage),
                    DiskWatch(client, storage),
                    ImageStore(client, self._base_image, self._images_mb),
                    self._owner,
                )
            )
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._inner = None
        await finish(self._stack.aclose())

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        return self._open(spec)

    def prepare(self, spec: SandboxSpec, count: int) -> None:
        self._entered.pool.prepare(Kind.of(spec), count)

    def ready(self, spec: SandboxSpec) -> int:
        """Return how many sandboxes like this stand ready in the pool."""
        return self._entered.pool.ready(Kind.of(spec))

    async def ensure_image(self, name: str | None, context: Path | None = None) -> str:
        """Provide an image, see `ImageStore`; without a registry, option `base_image` makes Dockerfiles buildable."""
        return await self._entered.images.ensure(name, context)

    async def image_mb(self, name: str) -> float:
        """Return what a present image takes, in MiB. Raises ImageMissing."""
        async with daemon_errors(f"measure image {name}"):
            found = await self._entered.client.images.inspect(name)
        return float(found["Size"]) / 2**20

    @property
    def _entered(self) -> _Entered:
        if self._inner is None:
            raise SandboxError("enter the backend first: async with DockerBackend() as backend")
        return self._inner

    @asynccontextmanager
    async def _open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        async with self._entered.open(spec) as sandbox:
            yield sandbox


class _Entered:
    """What stands between a backend's enter and exit: all that its sandboxes are made with."""

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

    async def __aenter__(self) -> _Entered:
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
        async with daemon_errors(f"copy the files of sandbox {machine.name}"):
            await self.client._query_json("commit", method="POST", params=params, data=config)

    async def _acquire(self, spec: SandboxSpec) -> Machine:
        kind = Kind.of(spec)
        machine = await self.pool.take(kind) or await self.launcher.launch(kind)
        self._machines.add(machine)
        if not self.launcher.quota:
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


def _storage(client: DaemonClient, info: Mapping[str, Any]) -> Path | None:
    """Return the Docker daemon's directory, where it is on this machine."""
    path = Path(info["DockerRootDir"])
    return path if client.here and path.is_dir() else None


def unlimited(info: Mapping[str, Any]) -> list[str]:
    """Return what the Docker daemon says that it can't limit; rootless ones may take such limits and ignore them."""
    limits = {"MemoryLimit": "memory", "SwapLimit": "swap", "PidsLimit": "processes", "CpuCfsQuota": "cpu"}
    return [what for field, what in limits.items() if info.get(field) is False]


def _may_have_quotas(info: Mapping[str, Any]) -> bool:
    backing = dict(info.get("DriverStatus") or ()).get("Backing Filesystem")
    return info["Driver"] in ("btrfs", "zfs") or (info["Driver"] == "overlay2" and backing == "xfs")
