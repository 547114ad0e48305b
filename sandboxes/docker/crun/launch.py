"""Starting sandboxes with crun."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Self

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
from sandboxes.docker.channel import Channel
from sandboxes.docker.connection import Connection
from sandboxes.docker.crun.box import Box
from sandboxes.docker.crun.burial import GROUND, PREFIX
from sandboxes.docker.crun.cgroups import Cgroup, is_unified
from sandboxes.docker.crun.home import Home
from sandboxes.docker.crun.images import Image, Images
from sandboxes.docker.crun.layers import Point
from sandboxes.docker.crun.machine import CrunMachine
from sandboxes.docker.crun.process import sealed
from sandboxes.docker.crun.spares import Spares
from sandboxes.docker.crun.stage import Stage
from sandboxes.docker.crun.template import Template, describe, read_template, with_filter
from sandboxes.docker.daemon import DaemonClient
from sandboxes.docker.launch import Launcher, retrying, tunnels_of
from sandboxes.docker.machine import Kind, Machine, Starter
from sandboxes.docker.slots import Slots
from sandboxes.docker.streams import SocketStream
from sandboxes.owner import Owner
from sandboxes.shielding import finish

logger = logging.getLogger(__name__)


class CrunStarter(Starter):
    """Starts sandboxes with crun, but those with a network, which the Docker daemon sets up.

    daemon: starts the first one of each kind of limits; the others get its isolation.
    """

    def __init__(
        self,
        crun: Path,
        daemon: Launcher,
        home: Home,
        stage: Stage,
        images: Images,
        *,
        max_starts: int,
        timeout_s: float,
        required: bool,
        spares: Spares,
    ) -> None:
        self._crun = crun
        self._daemon = daemon
        self._home = home
        self._stage = stage
        self._images = images
        self._spares = spares
        self._slots = Slots(max_starts)
        self._timeout_s = timeout_s
        self._unified = is_unified()
        self._templates: dict[tuple[Limits, bool], asyncio.Future[Template]] = {}
        self._boxes: set[Box] = set()
        self._fallible = not required
        self._refused = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.gather(*(self._bury(box) for box in list(self._boxes)))

    @property
    def busy(self) -> bool:
        return self._slots.taken or self._daemon.busy

    async def launch(self, kind: Kind) -> Machine:
        if kind.limits.network or self._refused:
            return await self._daemon.launch(kind)
        try:
            machine: Machine = await retrying()(self._launch, kind)
        except (ImageMissing, DaemonError, DaemonUnavailable, SandboxDied, SandboxTimeout):
            raise
        except SandboxError as error:
            if not self._fallible:
                raise
            logger.warning("Sandboxes are started by the Docker daemon from now on, as crun can't: %s", error)
            self._refused = True
            return await self._daemon.launch(kind)
        self._fallible = False  # it has been seen to work
        return machine

    async def _launch(self, kind: Kind) -> Machine:
        template = await self._template(kind)
        async with AsyncExitStack() as stack:
            image = await self._images.take(kind.image)
            stack.push_async_callback(self._images.give_back, image)
            if spare := await self._spares.take(kind, image.id):
                return spare
            try:
                async with self._slots:
                    box, channel = await self._start(stack, kind, image, template)
            except SandboxError as error:
                if self._images.whole(image):
                    raise
                raise DaemonError(f"image {kind.image} was removed while a sandbox was made of it") from error
            return CrunMachine(kind, box.name, channel, image, stack.pop_all(), box, self._spares)

    async def close(self) -> None:
        await self._spares.close()
        await self._slots.close()
        await self._daemon.close()

    async def _template(self, kind: Kind) -> Template:
        """Return the isolation of a kind. The first call has a container started for it."""
        key = (kind.limits, kind.switch_users)
        if key not in self._templates or _failed(self._templates[key]):
            self._templates[key] = asyncio.create_task(self._read_template(kind), name="sandbox template")
        return await asyncio.shield(self._templates[key])

    async def _read_template(self, kind: Kind) -> Template:
        machine = await self._daemon.launch(Kind(kind.image, kind.limits, kind.switch_users))
        try:
            shown = await machine.container.show()
            return await asyncio.to_thread(read_template, shown["State"]["Pid"])
        finally:
            await machine.discard()

    async def _keep_filter(self, kind: Kind, template: Template, box: Box) -> None:
        """Have the next ones use crun's compiled program of the seccomp profile."""
        program = await asyncio.to_thread(box.filter)
        done: asyncio.Future[Template] = asyncio.get_running_loop().create_future()
        done.set_result(with_filter(template, program))
        self._templates[kind.limits, kind.switch_users] = done

    async def _start(self, stack: AsyncExitStack, kind: Kind, image: Image, template: Template) -> tuple[Box, Channel]:
        home = self._home
        name = f"{PREFIX}{home.owner}-{home.new_name()}"
        cgroup = Cgroup(f"{home.parent}/{name}", self._unified)
        box = Box(home, self._stage, name, cgroup, template, bound=bool(kind.mounts))
        point = kind.point if isinstance(kind.point, Point) else Point((home.executor, home.etc, *image.stack))
        description = describe(template, f"/{cgroup.path}", image.config.get("Env") or [], kind.mounts)
        self._boxes.add(box)
        stack.push_async_callback(self._bury, box)
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise SandboxError(f"sandbox {name} can't be started: {error}") from error
        stack.callback(theirs.close)
        doors: dict[int, Door] = {}
        connection = Connection(name, lambda: SocketStream.over(ours), _never, tunnels_of(kind.limits, doors))
        stack.push_async_callback(connection.close)
        try:
            async with asyncio.timeout(self._timeout_s):
                await connection.attach()
                await finish(box.start(self._crun, point, description, theirs))
                await connection.greet(self._timeout_s)
                await finish(box.began())
                if "annotations" not in template:
                    await self._keep_filter(kind, template, box)
        except SandboxDied as error:
            raise SandboxError(f"sandbox {name} ended at once: {box.log() or error}") from error
        except TimeoutError as error:
            raise SandboxTimeout(f"sandbox {name} did not start within {self._timeout_s:g} s") from error
        except OSError as error:
            raise SandboxError(f"sandbox {name} can't be started: {error}") from error
        return box, Channel(connection, doors)

    async def _bury(self, box: Box) -> None:
        if box not in self._boxes:
            return
        self._boxes.discard(box)
        try:
            await finish(box.bury())
        except OSError as error:
            logger.warning("sandbox %s is not wholly removed, which is tried again at the end: %s", box.name, error)
            self._boxes.add(box)


@asynccontextmanager
async def crun_starter(
    crun: Path,
    daemon: Launcher,
    client: DaemonClient,
    owner: Owner,
    storage: Path,
    *,
    max_starts: int,
    timeout_s: float,
    required: bool,
    spares: Spares,
) -> AsyncIterator[CrunStarter]:
    """Open a starter of sandboxes with the program `crun`.

    required: nothing else will do; without it the Docker daemon starts them if crun can't start the first one.
    Raises OSError if this process lacks the permissions.
    """
    async with AsyncExitStack() as stack:
        stage = await stack.enter_async_context(Stage())
        home = await stack.enter_async_context(Home(storage, owner.id, GROUND, daemon.executor, client.address))
        images = Images(client, owner, daemon, storage)
        with suppress(OSError):  # it may be forbidden to run what is in memory alone
            program = sealed(crun)
            stack.callback(os.close, program)
            crun = Path(f"/proc/self/fd/{program}")
        starter = CrunStarter(
            *(crun, daemon, home, stage, images),
            max_starts=max_starts,
            timeout_s=timeout_s,
            required=required,
            spares=spares,
        )
        yield await stack.enter_async_context(starter)


async def _never() -> bool:
    """Return whether a sandbox still runs after the end of its stream: its stream is its life."""
    return False


def _failed(task: asyncio.Future[Template]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
