"""Starting sandboxes with crun."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from sandboxes.base import (
    DaemonError,
    DaemonUnavailable,
    Door,
    ImageMissing,
    Limits,
    SandboxDied,
    SandboxError,
    SandboxTimeout,
)
from sandboxes.docker.crun.bundle import Bundle
from sandboxes.docker.crun.cgroups import Cgroup, is_unified
from sandboxes.docker.crun.container import CrunContainer
from sandboxes.docker.crun.images import Image, Images
from sandboxes.docker.crun.layers import Snapshot
from sandboxes.docker.crun.mount_namespace import MountNamespace
from sandboxes.docker.crun.owner_directory import OwnerDirectory
from sandboxes.docker.crun.process import make_sealed_copy
from sandboxes.docker.crun.reap import OWNERS, PREFIX
from sandboxes.docker.crun.spares import Spares
from sandboxes.docker.crun.template import Template, add_filter, describe, read_template
from sandboxes.docker.daemon.starter import DaemonStarter, retrying
from sandboxes.docker.executor.channel import Channel
from sandboxes.docker.executor.connection import Connection
from sandboxes.docker.executor.container import Container, Kind, Starter
from sandboxes.docker.executor.proxy import tunnels_of
from sandboxes.docker.executor.streams import SocketStream
from sandboxes.docker.slots import Slots
from sandboxes.shielding import await_shared, finish

logger = logging.getLogger(__name__)


class CrunStarter(Starter):
    """Starts sandboxes with crun, but those with a network, which the Docker daemon sets up.

    daemon: starts the first one of each kind of limits; the others get its isolation.
    """

    def __init__(
        self,
        crun: Path,
        daemon: DaemonStarter,
        directory: OwnerDirectory,
        namespace: MountNamespace,
        images: Images,
        spares: Spares,
        *,
        required: bool,
    ) -> None:
        self._crun = crun
        self._daemon = daemon
        self._directory = directory
        self._namespace = namespace
        self._images = images
        self._spares = spares
        self._slots = Slots(daemon.max_starts)
        self._timeout_s = daemon.timeout_s
        self._unified = is_unified()
        self._templates: dict[tuple[Limits, bool], asyncio.Future[Template]] = {}
        self._bundles: set[Bundle] = set()
        self._fallible = not required
        self._refused = False

    async def remove_all(self) -> None:
        """Remove the sandboxes that are left."""
        await asyncio.gather(*(self._remove(bundle) for bundle in list(self._bundles)))

    @property
    def busy(self) -> bool:
        return self._slots.is_full or self._daemon.busy

    async def launch(self, kind: Kind) -> Container:
        if kind.limits.network or self._refused:
            return await self._daemon.launch(kind)
        try:
            container: Container = await retrying()(self._launch, kind)
        except (ImageMissing, DaemonError, DaemonUnavailable, SandboxDied, SandboxTimeout):
            raise
        except SandboxError as error:
            if not self._fallible:
                raise
            logger.warning("Sandboxes are started by the Docker daemon from now on, as crun can't: %s", error)
            self._refused = True
            return await self._daemon.launch(kind)
        self._fallible = False  # it has been seen to work
        return container

    async def _launch(self, kind: Kind) -> Container:
        template = await self._template(kind)
        async with AsyncExitStack() as stack:
            image = await self._images.acquire(kind.image)
            stack.push_async_callback(self._images.release, image)
            if spare := await self._spares.take(kind, image.id):
                return spare
            try:
                async with self._slots:
                    bundle, channel = await self._start(stack, kind, image, template)
            except SandboxError as error:
                if self._images.has_all_files(image):
                    raise
                raise DaemonError(f"image {kind.image} was removed while a sandbox was made of it") from error
            return CrunContainer(kind, bundle.name, channel, image, stack.pop_all(), bundle, self._spares.keep)

    async def close(self) -> None:
        await self._spares.close()
        await self._slots.close()
        await self._daemon.close()

    async def _template(self, kind: Kind) -> Template:
        """Return the isolation of a kind. The first call has a container started for it. If this fails, maybe for its
        image, the next one has another started."""
        key = (kind.limits, kind.switch_users)
        while True:
            reading, is_own = self._templates.get(key), False
            if reading is None or _failed(reading):
                reading, is_own = asyncio.create_task(self._read_template(kind), name="sandbox template"), True
                self._templates[key] = reading
            try:
                return await await_shared(reading)
            except SandboxError:
                if is_own:
                    raise

    async def _read_template(self, kind: Kind) -> Template:
        container = await self._daemon.launch(Kind(kind.image, kind.limits, kind.switch_users))
        try:
            shown = await container.handle.show()
            return await asyncio.to_thread(read_template, shown["State"]["Pid"])
        finally:
            await container.discard()

    async def _keep_filter(self, kind: Kind, template: Template, bundle: Bundle) -> None:
        """Have the next ones use crun's compiled program of the seccomp profile."""
        program = await asyncio.to_thread(bundle.filter)
        done: asyncio.Future[Template] = asyncio.get_running_loop().create_future()
        done.set_result(add_filter(template, program))
        self._templates[kind.limits, kind.switch_users] = done

    async def _start(
        self, stack: AsyncExitStack, kind: Kind, image: Image, template: Template
    ) -> tuple[Bundle, Channel]:
        directory = self._directory
        name = f"{PREFIX}{directory.owner}-{directory.new_name()}"
        cgroup = Cgroup(f"{directory.parent}/{name}", self._unified)
        bundle = Bundle(directory, self._namespace, name, cgroup, template, bound=bool(kind.mounts))
        snapshot = (
            kind.snapshot
            if isinstance(kind.snapshot, Snapshot)
            else Snapshot((directory.executor, directory.etc, *image.stack))
        )
        description = describe(template, f"/{cgroup.path}", image.config.get("Env") or [], kind.mounts)
        self._bundles.add(bundle)
        stack.push_async_callback(self._remove, bundle)
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise SandboxError(f"sandbox {name} can't be started: {error}") from error
        stack.callback(theirs.close)
        doors: dict[int, Door] = {}
        connection = Connection(name, lambda: SocketStream.from_socket(ours), _never, tunnels_of(kind.limits, doors))
        stack.push_async_callback(connection.close)
        try:
            async with asyncio.timeout(self._timeout_s):
                await connection.attach()
                await finish(bundle.start(self._crun, snapshot, description, theirs))
                await connection.greet(self._timeout_s)
                await finish(bundle.note_first_process())
                if "annotations" not in template:
                    await self._keep_filter(kind, template, bundle)
        except SandboxDied as error:
            raise SandboxError(f"sandbox {name} ended at once: {bundle.log() or error}") from error
        except TimeoutError as error:
            raise SandboxTimeout(f"sandbox {name} did not start within {self._timeout_s:g} s") from error
        except OSError as error:
            raise SandboxError(f"sandbox {name} can't be started: {error}") from error
        return bundle, Channel(connection, doors)

    async def _remove(self, bundle: Bundle) -> None:
        if bundle not in self._bundles:
            return
        self._bundles.discard(bundle)
        try:
            await finish(bundle.remove())
        except OSError as error:
            logger.warning("sandbox %s is not wholly removed, which is tried again at the end: %s", bundle.name, error)
            self._bundles.add(bundle)


@asynccontextmanager
async def crun_starter(
    crun: Path, daemon: DaemonStarter, storage: Path, spares: Spares, *, required: bool
) -> AsyncIterator[CrunStarter]:
    """Open a starter of sandboxes with the program `crun`.

    required: nothing else will do; without it the Docker daemon starts them if crun can't start the first one.
    Raises OSError if this process lacks the permissions.
    """
    client, owner = daemon.client, daemon.owner
    async with AsyncExitStack() as stack:
        namespace = await stack.enter_async_context(MountNamespace())
        opening = OwnerDirectory(storage, owner.id, OWNERS, daemon.executor, client.address)
        directory = await stack.enter_async_context(opening)
        images = Images(client, owner, daemon, storage)
        with suppress(OSError):  # it may be forbidden to run what is in memory alone
            program = make_sealed_copy(crun)
            stack.callback(os.close, program)
            crun = Path(f"/proc/self/fd/{program}")
        starter = CrunStarter(crun, daemon, directory, namespace, images, spares, required=required)
        stack.push_async_callback(starter.remove_all)
        yield starter


async def _never() -> bool:
    """Return whether a sandbox still runs after the end of its stream: its stream is its life."""
    return False


def _failed(task: asyncio.Future[Template]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
