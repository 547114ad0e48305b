"""Sandboxes in pods, with the executor as each one's first process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from sandboxes.base import Backend, NotSupported, Sandbox, SandboxError, SandboxSpec
from sandboxes.docker.executor.channel import Identity
from sandboxes.docker.executor.container import Container, Kind
from sandboxes.docker.executor.doors import door_ports
from sandboxes.docker.executor.program import LEASE_S
from sandboxes.docker.executor.sandbox import DockerSandbox
from sandboxes.kubernetes.cluster import Cluster
from sandboxes.kubernetes.guard import choose_guard
from sandboxes.kubernetes.images import PodImages
from sandboxes.kubernetes.life import leased, reap, remove_pods, selector
from sandboxes.kubernetes.manifest import executor_map
from sandboxes.kubernetes.options import PodOptions
from sandboxes.kubernetes.pod import PodContainer
from sandboxes.kubernetes.starter import PodStarter
from sandboxes.kubernetes.watch import PodWatch
from sandboxes.owner import Owner
from sandboxes.shielding import finish

logger = logging.getLogger(__name__)

BASE_IMAGE = "debian:12-slim"


class KubernetesBackend(Backend):
    """Pods of one namespace. base_image: for tasks that name no image."""

    def __init__(self, *, pods: PodOptions | Mapping[str, Any] | None = None, base_image: str | None = None) -> None:
        self._options = PodOptions.model_validate(pods or {})
        self._owner = Owner.of_this_process()
        self._images = PodImages(self._options, base_image or BASE_IMAGE)
        self._stack = AsyncExitStack()
        self._open_pods: set[Container] = set()
        self._going: set[asyncio.Task[None]] = set()
        self._starter: PodStarter | None = None

    @property
    def owner(self) -> Owner:
        """Return the owner; its id is the value of the pods' label `atropos-agent.owner`."""
        return self._owner

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(Cluster.connect(self._options))
            await reap(cluster)
            await cluster.ensure(cluster.path("configmaps"), executor_map(self._options))
            reference = await stack.enter_async_context(leased(cluster, self._owner))
            guard = await choose_guard(cluster, self._options, self._owner, reference)
            logger.info("Networks: %s", guard.text)
            watch = PodWatch(cluster, selector(self._owner.id))
            stack.push_async_callback(remove_pods, cluster, self._owner.id)
            for task in (watch.run(), self._show_interest()):
                stack.callback(asyncio.create_task(task, name="pods").cancel)
            starter = PodStarter(cluster, watch, self._owner, reference, self._options, guard)
            stack.push_async_callback(starter.close)
            self._starter = starter
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._starter = None
        try:
            await finish(self._stack.aclose())
        except SandboxError as error:
            logger.warning("%s; `python -m sandboxes reap --pods` removes what is left", error)

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        return self._open(spec)

    @asynccontextmanager
    async def _open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        if spec.workdir is not None and not spec.workdir.startswith("/"):
            raise ValueError(f"workdir must be an absolute path, got {spec.workdir!r}")
        sandbox = DockerSandbox(await self._acquire(Kind.of(spec), spec), spec, self)
        try:
            yield sandbox
        finally:
            await self._release(sandbox.container)

    async def _acquire(self, kind: Kind, spec: SandboxSpec) -> PodContainer:
        if self._starter is None:
            raise SandboxError("enter the backend first: async with KubernetesBackend() as backend")
        image, files = self._images.parts(kind.image)
        new = await self._starter.launch(replace(kind, image=image))
        self._open_pods.add(new)
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
        self._open_pods.discard(container)
        await container.release()

    async def _show_interest(self) -> None:
        while True:
            await asyncio.sleep(LEASE_S / 5)
            for one in [*self._open_pods]:
                with contextlib.suppress(SandboxError):  # whoever uses it next is told
                    await one.channel.show_interest()

    async def ensure_image(self, name: str | None, context: Path | None = None) -> str:
        """Return a name for `open`. Raises ImageMissing for a Dockerfile without a builder; nodes pull the others when
        a pod starts."""
        return await self._images.ensure(name, context)

    # What a sandbox asks of its backend

    async def check_room(self, container: Container) -> None:
        """Do nothing: the cluster watches its nodes' disks, and says so by an eviction."""

    async def exchange(self, container: Container, spec: SandboxSpec) -> Container:
        """Return another pod of the same kind; the old one goes in the background."""
        new = await self._acquire(container.kind, spec)
        going = asyncio.create_task(self._release(container))
        self._going.add(going)
        going.add_done_callback(self._going.discard)
        return new

    def fork(
        self, container: Container, spec: SandboxSpec, count: int
    ) -> AbstractAsyncContextManager[Sequence[Sandbox]]:
        raise NotSupported("a pod can't be forked; open other sandboxes and upload its files")


async def reap_dead_drivers(namespace: str) -> int:
    """Remove the pods of dead drivers; "" for the kubeconfig's namespace. Returns how many."""
    async with Cluster.connect(PodOptions(namespace=namespace)) as cluster:
        return await reap(cluster)
