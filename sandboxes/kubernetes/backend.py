"""Sandboxes in pods, with the executor as each one's first process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Self

from sandboxes.base import SandboxError
from sandboxes.docker.executor.container import Kind
from sandboxes.kubernetes.claims import ClaimStarter, check_controller
from sandboxes.kubernetes.cluster import Cluster
from sandboxes.kubernetes.guard import choose_guard
from sandboxes.kubernetes.images import PodImages
from sandboxes.kubernetes.life import hold_lease, reap, reap_continuously, remove_pods, selector
from sandboxes.kubernetes.manifest import executor_map
from sandboxes.kubernetes.options import PodOptions
from sandboxes.kubernetes.pod import PodContainer
from sandboxes.kubernetes.starter import PodStarter
from sandboxes.kubernetes.watch import PodWatch
from sandboxes.remote.backend import RemoteBackend

logger = logging.getLogger(__name__)

BASE_IMAGE = "debian:12-slim"


class KubernetesBackend(RemoteBackend):
    """Pods of one namespace. base_image: for tasks that name no image."""

    remains = "`python -m sandboxes reap --pods` removes what is left"

    def __init__(self, *, pods: PodOptions | Mapping[str, Any] | None = None, base_image: str | None = None) -> None:
        self._options = PodOptions.model_validate(pods or {})
        super().__init__(PodImages(self._options, base_image or BASE_IMAGE))
        self._starter: PodStarter | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(Cluster.connect(self._options))
            if self._options.warm:
                await check_controller(cluster)
            await reap(cluster)
            await cluster.ensure(cluster.path("configmaps"), executor_map(self._options))
            reference = await stack.enter_async_context(hold_lease(cluster, self.owner))
            guard = await choose_guard(cluster, self._options, self.owner, reference)
            logger.info("Networks: %s", guard.text)
            watch = PodWatch(cluster, selector(self.owner.id))
            stack.push_async_callback(remove_pods, cluster, self.owner.id)
            parts = (cluster, watch, self.owner, reference, self._options, guard)
            starter = ClaimStarter(*parts) if self._options.warm else PodStarter(*parts)
            for task in (watch.run(), self.renew_leases(), starter.run(), reap_continuously(cluster)):
                stack.callback(asyncio.create_task(task, name="pods").cancel)
            stack.push_async_callback(starter.close)
            self._starter = starter
            stack.callback(setattr, self, "_starter", None)
            self._stack = stack.pop_all()
        return self

    async def launch(self, kind: Kind) -> PodContainer:
        if self._starter is None:
            raise SandboxError("enter the backend first: async with KubernetesBackend() as backend")
        return await self._starter.launch(kind)


async def reap_dead_drivers(namespace: str) -> int:
    """Remove the pods of dead drivers; "" for the kubeconfig's namespace. Returns how many."""
    async with Cluster.connect(PodOptions(namespace=namespace)) as cluster:
        return await reap(cluster)
