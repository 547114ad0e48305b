"""Places sandboxes on Docker hosts: by free processors and memory, and by the places of their image."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self

from sandboxes.base import Backend, DaemonUnavailable, ImageMissing, Sandbox, SandboxError, SandboxSpec, SandboxTimeout
from sandboxes.docker.backend import DockerBackend
from sandboxes.docker.daemon.client import daemon_errors
from sandboxes.fleet.host import Host
from sandboxes.fleet.member import Member
from sandboxes.shielding import finish, on_failure, stop

logger = logging.getLogger(__name__)

IMAGE_AWAY = 0.5
"""How much busier a host with the image may be before a host without it is taken, and has to get it."""
ROOM_S = 600.0
"""How long an opening waits for a host with room, or for one with an answer, in seconds."""
_AGAIN_S = 0.2
"""How often it is looked whether one answers again."""
SEND_S = 1800.0
"""How long an image may take from one host to another, in seconds."""


class FleetBackend(Backend):
    """Sandboxes on several Docker hosts. A rollout's second sandbox may be on another one than its first.

    hosts: their addresses. At least one must answer when the fleet is opened; the others are used when they do.
    options: of each host's `DockerBackend`.
    """

    def __init__(self, hosts: Sequence[Host], **options: Any) -> None:
        def make(host: Host) -> DockerBackend:
            # A host that lacks our base image gets it from another.
            return DockerBackend(url=host.url, certificates=host.certificates, makes_base=False, **options)

        if not hosts:
            raise ValueError("a fleet needs at least one host")
        self.members = [Member(host, make) for host in hosts]
        self._images: dict[str, tuple[str | None, Path | None]] = {}
        self._fetching: dict[tuple[Member, str], asyncio.Lock] = {}
        self._room = asyncio.Condition()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._close)
            found = await asyncio.gather(*(member.open() for member in self.members), return_exceptions=True)
            problems = [error for error in found if isinstance(error, BaseException)]
            for error in problems:
                if not isinstance(error, SandboxError):
                    raise error
                logger.warning("a Docker host can't be used for now: %s", error)
            if len(problems) == len(self.members):
                raise DaemonUnavailable(f"none of the Docker hosts can be used: {'; '.join(map(str, problems))}")
            watches = [asyncio.create_task(member.watch(), name=member.host.url) for member in self.members]
            stack.push_async_callback(stop, watches)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await finish(self._stack.aclose())

    async def _close(self) -> None:
        await asyncio.gather(*(member.close() for member in self.members))

    async def ensure_image(self, name: str | None, context: Path | None = None) -> str:
        """Provide an image on one host; the others get it when they need it. Raises ImageMissing, SandboxError."""
        deadline = time.monotonic() + ROOM_S
        while True:
            try:
                return await self._provide_anywhere(name, context)
            except SandboxError:
                if not all(member.is_silent for member in self.members) or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(_AGAIN_S)

    async def _provide_anywhere(self, name: str | None, context: Path | None) -> str:
        problem: SandboxError | None = None
        for member in sorted(self._usable_members(), key=lambda member: (member.load, not member.images)):
            try:
                found = await member.backend.ensure_image(name, context)
            except SandboxError as error:
                member.note_failure(error)
                problem = error
                continue
            member.images.add(found)
            self._images[found] = name, context
            return found
        raise problem or self._unavailable_error()

    def prepare(self, spec: SandboxSpec, count: int) -> None:
        holding = [member for member in self._usable_members() if spec.image in member.images]
        for member in holding:
            member.backend.prepare(spec, math.ceil(count / len(holding)))

    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        async with AsyncExitStack() as stack:
            member, sandbox = await self._place(spec, stack)
            with on_failure(member.note_failure):
                yield sandbox
            member.note_success()

    async def _place(self, spec: SandboxSpec, stack: AsyncExitStack) -> tuple[Member, Sandbox]:
        """Open a sandbox on the best host; if it fails, on the next. Raises the last one's error."""
        tried: set[Member] = set()
        deadline = time.monotonic() + ROOM_S
        while True:
            member = await self._choose(spec, tried, deadline)
            tried.add(member)
            member.note_open(spec)
            async with AsyncExitStack() as opening:
                opening.push_async_callback(self._note_close, member, spec)
                try:
                    await self.provide(member, spec.image)
                    sandbox = await opening.enter_async_context(member.backend.open(spec))
                except SandboxError as error:
                    member.images.discard(spec.image)
                    member.note_failure(error)
                    if all(other.is_silent for other in self.members):
                        tried.clear()  # it is waited for, as for room
                    elif all(other in tried for other in self._usable_members()):
                        raise
                    logger.info("no sandbox on %s, another host is tried: %s", member.host.url, error)
                    continue
                stack.push_async_exit(opening.pop_all())
                return member, sandbox

    async def _choose(self, spec: SandboxSpec, tried: set[Member], deadline: float) -> Member:
        """Return the host for a sandbox. Waits until one has room, and if none answers, until one does.
        Raises DaemonUnavailable, SandboxTimeout."""
        async with self._room:
            while True:
                usable = [member for member in self._usable_members() if member not in tried]
                silent = all(member.is_silent for member in self.members)
                if not usable and not (silent and time.monotonic() < deadline):
                    raise self._unavailable_error()
                if free := [member for member in usable if not member.is_full]:
                    return min(free, key=lambda member: member.load + IMAGE_AWAY * (spec.image not in member.images))
                try:
                    async with asyncio.timeout(_AGAIN_S if silent else deadline - time.monotonic()):
                        await self._room.wait()
                except TimeoutError as error:
                    if silent or time.monotonic() < deadline:
                        continue
                    raise SandboxTimeout(
                        f"no Docker host had room within {ROOM_S:g} s; make fewer rollouts at the same time, "
                        "or raise the hosts' capacity"
                    ) from error

    async def _note_close(self, member: Member, spec: SandboxSpec) -> None:
        member.note_close(spec)
        async with self._room:
            self._room.notify_all()

    async def provide(self, member: Member, image: str) -> None:
        """Ensure a host's image: present there, made or pulled there, or sent by another host.
        Raises ImageMissing, SandboxError."""
        if image in member.images:
            return
        async with self._fetching.setdefault((member, image), asyncio.Lock()):
            if image in member.images:
                return
            name, context = self._images.get(image, (image, None))
            try:
                found = await member.backend.ensure_image(name, context)
            except ImageMissing:
                found = ""
            if found != image:
                await self._send(image, member)
            member.images.add(image)

    async def _send(self, image: str, to: Member) -> None:
        """Copy an image from another host. Raises ImageMissing if none has it."""
        for source in [member for member in self._usable_members() if image in member.images and member is not to]:
            logger.info("sending image %s from %s to %s", image, source.host.url, to.host.url)
            try:
                async with (
                    daemon_errors(f"send image {image} from {source.host.url} to {to.host.url}", SEND_S),
                    source.backend.client.images.export_image(image) as exported,
                ):
                    await to.backend.client.images.import_image(exported.iter_chunked(2**20))
                return
            except SandboxError as error:
                logger.warning("%s", error)
        raise ImageMissing(f"{to.host.url} has no image {image} and can't get it, and no other host has it")

    def _usable_members(self) -> list[Member]:
        return [member for member in self.members if member.is_usable]

    def _unavailable_error(self) -> DaemonUnavailable:
        return DaemonUnavailable(f"no Docker host can be used at present, of {len(self.members)}")
