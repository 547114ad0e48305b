"""Sandboxes in Docker containers, with an executor of ours as each container's main process.

Defaults: no network, root's usual capabilities, no new privileges, limits on processes, memory
(without swap), cpu and disk.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self

from sandboxes.base import Backend, Sandbox, SandboxError, SandboxSpec
from sandboxes.docker.crun.availability import STARTERS, Obstacle, find_crun
from sandboxes.docker.crun.reap import reap_dead_folders
from sandboxes.docker.crun.spares import Spares
from sandboxes.docker.crun.starter import crun_starter
from sandboxes.docker.daemon.client import DaemonClient, connect, daemon_errors
from sandboxes.docker.daemon.engine import Engine
from sandboxes.docker.daemon.reap import reap_dead_owners
from sandboxes.docker.daemon.starter import DaemonStarter
from sandboxes.docker.disk import DiskWatch
from sandboxes.docker.executor.container import Kind, Starter
from sandboxes.docker.images.base_image import BASE_IMAGE, make_base_image
from sandboxes.docker.images.store import ImageStore
from sandboxes.docker.open_sandboxes import OpenSandboxes
from sandboxes.docker.pool import PoolLimits, WarmPool
from sandboxes.owner import Owner
from sandboxes.shielding import finish

logger = logging.getLogger(__name__)


class DockerBackend(Backend):
    """Containers of one Docker daemon.

    url: the Docker daemon's address (unix://, tcp://, ssh://); None takes the address of the Docker command line.
    certificates: folder with ca.pem, cert.pem and key.pem, for tcp:// with TLS.
    max_starts: how many containers are created and started, or removed, at a time.
    base_image: replaces the image in the last `FROM` of Dockerfiles for `ensure_image`.
    start_timeout_s: how long one container may take from create to its executor's greeting.
    pool: how many containers may stand ready.
    runtime: the runtime of the containers: None for the Docker daemon's default, "runsc" for gVisor if it is installed.
    images_mb: the limit for all images of the Docker daemon together; beyond it our unused ones are removed.
    shortcut: commands go past the Docker daemon, and so are quicker, if this process is root on its machine.
    starter: the starter of containers: "docker" for the Docker daemon, "crun" for crun past it, at a tenth of the
        price; None for crun if possible, and else the Docker daemon.
    makes_base: a missing base image of ours is made if it can't be pulled. This takes a minute or two.
    owner: its id is the value of the containers' label `atropos-agent.owner`.
    """

    def __init__(
        self,
        *,
        url: str | None = None,
        certificates: Path | None = None,
        max_starts: int = 8,
        base_image: str | None = None,
        start_timeout_s: float = 120.0,
        pool: PoolLimits | None = None,
        runtime: str | None = None,
        images_mb: int = 100_000,
        shortcut: bool = True,
        starter: str | None = None,
        makes_base: bool = True,
    ) -> None:
        if starter not in (None, *STARTERS):
            raise ValueError(f"starter {starter!r}: choose one of {', '.join(STARTERS)}")
        self._url = url
        self._certificates = certificates
        self._base_image = base_image
        self._start_timeout_s = start_timeout_s
        self._max_starts = max_starts
        self._pool_limits = pool or PoolLimits()
        self._runtime = runtime
        self._images_mb = images_mb
        self._shortcut = shortcut
        self._starter = starter
        self._makes_base = makes_base
        self.owner = Owner.of_this_process()
        self._stack = AsyncExitStack()
        self._inner: OpenSandboxes | None = None

    @property
    def client(self) -> DaemonClient:
        """Return the client of the Docker daemon, while the backend is open. Raises SandboxError."""
        return self._sandboxes.client

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(connect(self._url, self._certificates))
            engine = await Engine.of(client)
            if engine.lacking:
                logger.warning(
                    "This Docker daemon can't limit %s: sandboxes may take more than they should",
                    ", ".join(engine.lacking),
                )
            launcher = DaemonStarter(
                client,
                self.owner,
                engine,
                max_starts=self._max_starts,
                timeout_s=self._start_timeout_s,
                runtime=self._runtime,
                shortcut=self._shortcut and client.here and os.geteuid() == 0,
            )
            await reap_dead_owners(client)
            if engine.storage is not None and os.geteuid() == 0:
                await asyncio.to_thread(reap_dead_folders, engine.storage)
            makers = {BASE_IMAGE: partial(make_base_image, client)} if self._makes_base else {}
            starter = await self._open_starter(stack, launcher, engine.info)
            images = ImageStore(client, self._base_image, self._images_mb, makers)
            stack.push_async_callback(images.remove_leftovers)
            self._inner = await stack.enter_async_context(
                OpenSandboxes(
                    client,
                    starter,
                    WarmPool(starter, self._pool_limits, engine.storage),
                    DiskWatch(engine.storage),
                    images,
                    self.owner,
                )
            )
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._inner = None
        await finish(self._stack.aclose())

    async def _open_starter(self, stack: AsyncExitStack, daemon: DaemonStarter, info: Mapping[str, Any]) -> Starter:
        """Return the starter of containers. Raises SandboxError if crun is requested and impossible."""
        if self._starter == "docker":
            return daemon
        crun = find_crun(daemon.client, info, self._runtime)
        if isinstance(crun, Obstacle):
            if self._starter == "crun":
                raise SandboxError(f"crun can't start sandboxes here: {crun.why}")
            logger.info("The Docker daemon starts sandboxes: %s", crun.why)
            return daemon
        storage, required = Path(info["DockerRootDir"]), self._starter == "crun"
        opening = crun_starter(crun, daemon, storage, Spares(self._pool_limits, storage), required=required)
        try:
            starter = await stack.enter_async_context(opening)
        except OSError as error:
            if required:
                raise SandboxError(f"crun can't start sandboxes here: {error}") from error
            logger.warning("The Docker daemon starts sandboxes, as what crun would take is refused: %s", error)
            return daemon
        logger.info("Sandboxes are started by crun, past the Docker daemon")
        return starter

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        return self._sandboxes.open(spec)

    def prepare(self, spec: SandboxSpec, count: int) -> None:
        self._sandboxes.pool.prepare(Kind.of(spec), count)

    def ready(self, spec: SandboxSpec) -> int:
        """Return how many sandboxes like this stand ready in the pool."""
        return self._sandboxes.pool.ready(Kind.of(spec))

    async def ensure_image(self, name: str | None, context: Path | None = None) -> str:
        """Provide an image, see `ImageStore`; without a registry, option `base_image` makes Dockerfiles buildable.
        Without a name and a context it is the base image."""
        if name is None and context is None:
            name = self._base_image or BASE_IMAGE
        return await self._sandboxes.images.ensure(name, context)

    async def image_id(self, name: str) -> str:
        async with daemon_errors(f"look for image {name}"):
            return str((await self._sandboxes.client.images.inspect(name))["Id"])

    async def image_mb(self, name: str) -> float:
        """Return the size of a present image, in MiB. Raises ImageMissing."""
        async with daemon_errors(f"measure image {name}"):
            found = await self._sandboxes.client.images.inspect(name)
        return float(found["Size"]) / 2**20

    @property
    def _sandboxes(self) -> OpenSandboxes:
        if self._inner is None:
            raise SandboxError("enter the backend first: async with DockerBackend() as backend")
        return self._inner
