"""Starting pods, a few at a time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from sandboxes.base import (
    DaemonUnavailable,
    SandboxDied,
    SandboxError,
    SandboxTimeout,
)
from sandboxes.docker.executor.channel import Channel
from sandboxes.docker.executor.container import Kind
from sandboxes.docker.slots import Slots
from sandboxes.kubernetes.cluster import Cluster
from sandboxes.kubernetes.exec_stream import ExecStream
from sandboxes.kubernetes.faults import (
    LINK,
    WHO,
    Pod,
    condition,
    container,
    describe_pending,
    end_error,
    is_up,
    raise_unstartable,
)
from sandboxes.kubernetes.guard import Guard
from sandboxes.kubernetes.manifest import PROGRAM, SOCKET, pod
from sandboxes.kubernetes.options import PodOptions
from sandboxes.kubernetes.pod import PodContainer
from sandboxes.kubernetes.watch import PodWatch
from sandboxes.owner import Owner
from sandboxes.remote.api import Conflict, QuotaExceeded
from sandboxes.remote.backend import open_channel, query_image
from sandboxes.shielding import finish

logger = logging.getLogger(__name__)

_REMOVE_S = 60.0
_QUOTA_PAUSE_S = 3.0
_KUBELET = 10250


class PodStarter:
    """Starts pods. reference: to the object that owns them in the cluster."""

    def __init__(
        self,
        cluster: Cluster,
        watch: PodWatch,
        owner: Owner,
        reference: Mapping[str, Any],
        options: PodOptions,
        guard: Guard,
    ) -> None:
        self._cluster = cluster
        self._watch = watch
        self._owner = owner
        self._reference = reference
        self._options = options
        self._guard = guard
        self._slots = Slots(options.max_starts)
        self._numbers = itertools.count(1)
        self._images: dict[str, Mapping[str, Any]] = {}
        """What is known of images: Env, WorkingDir, User."""

    async def run(self) -> None:
        """Do what starts need beside them, until cancelled."""

    async def close(self) -> None:
        await self._slots.close()

    async def launch(self, kind: Kind) -> PodContainer:
        """Start a pod; waits while the cluster has no room. Raises ImageMissing, SandboxTimeout, SandboxError; then
        nothing is left."""
        name = f"atropos-{self._owner.id}-{next(self._numbers)}"
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._remove, name)
            async with self._slots:
                shown = await self._start_pod(name, kind)
                channel = await self._open_channel(stack, kind, shown)
            image = await self._image(kind.image, shown, channel)
            return PodContainer(
                *(kind, shown["metadata"]["name"], channel, image, stack.pop_all()),
                cluster=self._cluster,
                uid=shown["metadata"]["uid"],
                outage_s=self._options.outage_timeout_s,
            )

    async def _start_pod(self, name: str, kind: Kind) -> Pod:
        """Have a pod, and wait until its containers run."""
        options, loop = self._options, asyncio.get_running_loop()
        limit, doing = options.room_timeout_s, "find room"
        try:
            async with asyncio.timeout(limit) as patience:
                pod_name = await self._acquire_pod(name, kind)
                await self._watch.wait_for(pod_name, _has_node)
                limit, doing = options.start_timeout_s, "start"
                patience.reschedule(loop.time() + limit)
                return await self._watch.wait_for(pod_name, _running_pod)
        except TimeoutError as error:
            if isinstance(error, SandboxError):
                raise
            raise SandboxTimeout(
                f"sandbox {name} did not {doing} within {limit:g} s: {self._describe_wait(name)}"
            ) from error

    def _describe_wait(self, name: str) -> str:
        """Describe what a start waits for."""
        return describe_pending(self._watch.last_state(name))

    async def _acquire_pod(self, name: str, kind: Kind) -> str:
        """Create a pod, and return its name. Waits for room in the quota."""
        body = self._pod(name, kind, asks_user=kind.image not in self._images)
        while True:
            try:
                await self._create(self._object_path(name), body)
                return name
            except QuotaExceeded as error:
                logger.info("A sandbox waits for room: %s", error)
                await asyncio.sleep(_QUOTA_PAUSE_S)

    def _pod(self, name: str, kind: Kind, **more: Any) -> dict[str, Any]:
        takes_down = self._guard.takes_down and not kind.limits.network
        labels = self._owner.labels()
        return pod(name, kind, self._options, labels, self._reference, takes_down=takes_down, **more)

    def _object_path(self, name: str) -> str:
        """Return the path of the object that a start makes."""
        return self._cluster.path("pods", name)

    async def _create(self, path: str, body: Mapping[str, Any]) -> None:
        """Create an object, once: a repeated request finds it there."""
        place = path.rpartition("/")[0]
        with contextlib.suppress(Conflict):
            await self._cluster.retry(
                lambda: self._cluster.request("POST", place, body), self._options.outage_timeout_s
            )

    async def _open_channel(self, stack: AsyncExitStack, kind: Kind, shown: Pod) -> Channel:
        name, uid = shown["metadata"]["name"], shown["metadata"]["uid"]
        closed = not kind.limits.network
        probes = (f"{shown['status'].get('hostIP', '')}:{_KUBELET}", *self._guard.probes)
        checks = [] if not closed else ["off"] if self._guard.takes_down else list(probes)

        async def attach() -> ExecStream:
            command = [PROGRAM, "relay", SOCKET, "5", *checks]
            return await self._cluster.exec(name, LINK, command)

        async def is_running() -> bool:
            if (gone := end_error(await self._cluster.pod(name, uid))) is not None:
                raise gone
            return True

        times = {"start_s": self._options.start_timeout_s, "return_s": self._options.outage_timeout_s}
        return await open_channel(stack, kind, name, attach, is_running, api=self._cluster, host="cluster", **times)

    async def _image(self, image: str, shown: Pod, channel: Channel) -> Mapping[str, Any]:
        """Return what the API server does not tell of an image: the container's first process knows it."""
        if image in self._images:
            return self._images[image]
        ended = container(shown, WHO).get("state", {}).get("terminated") or {}
        uid = (ended.get("message") or "0 0").split()[0]
        known = await query_image(channel) | {"User": "" if uid == "0" else uid}
        return self._images.setdefault(image, known)

    async def _remove(self, name: str) -> None:
        """Delete a pod in the background of its node: nobody waits for its end."""
        delete = self._object_path(name)
        try:
            with contextlib.suppress(SandboxDied):  # it is gone
                await finish(self._cluster.retry(lambda: self._cluster.request("DELETE", delete), _REMOVE_S))
        except (DaemonUnavailable, SandboxError) as error:
            logger.warning("%s stays for now: %s; `python -m sandboxes reap --pods` removes it later", name, error)
        self._watch.forget(name)


def _has_node(shown: Pod | None) -> bool | None:
    raise_unstartable(shown)
    return condition(shown or {}, "PodScheduled").get("status") == "True" or None


def _running_pod(shown: Pod | None) -> Pod | None:
    raise_unstartable(shown)
    return shown if shown is not None and is_up(shown) else None
