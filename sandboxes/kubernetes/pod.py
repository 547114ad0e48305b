"""A pod under a sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from sandboxes.base import DaemonRefused, DaemonUnavailable, SandboxError
from sandboxes.docker.executor.channel import Channel
from sandboxes.docker.executor.container import Kind
from sandboxes.docker.executor.memory import killed_below_limit
from sandboxes.docker.executor.tools import TOOL_S, ToolContainer
from sandboxes.kubernetes.cluster import Cluster
from sandboxes.kubernetes.faults import BOX, end_error, limit_of, was_killed_during
from sandboxes.kubernetes.manifest import PROGRAM
from sandboxes.remote.api import describe_cause

_STATUS_S = 5.0
"""How long a kubelet may take over telling that a container has ended."""
_EVENT_S = 2.0
"""How long a kubelet may take over an event, beyond the status of a container that has ended."""
NODES = "default"
"""The namespace with the events of nodes."""
_FULL = 0.97
_USAGE = {
    "memory": [
        ("memory.current", "memory.max"),
        ("memory/memory.usage_in_bytes", "memory/memory.limit_in_bytes"),
    ],
    "processes": [("pids.current", "pids.max"), ("pids/pids.current", "pids/pids.max")],
}


class PodContainer(ToolContainer):
    """A running pod. The cluster starts the tools in its container."""

    def __init__(
        self,
        kind: Kind,
        name: str,
        channel: Channel,
        image: Mapping[str, Any],
        stack: AsyncExitStack,
        *,
        cluster: Cluster,
        uid: str,
        outage_s: float,
    ) -> None:
        super().__init__(kind, name, channel, image, stack)
        self._cluster = cluster
        self._uid = uid
        self._outage_s = outage_s

    async def _run(self, command: tuple[str, ...], stdin: bytes, most: int) -> bytes:
        return await self._cluster.retry_inside(lambda: self._once(command, stdin, most), self._outage_s)

    async def _once(self, command: tuple[str, ...], stdin: bytes, most: int) -> bytes:
        doing = f"{command[0]} in {self.name}"
        try:
            stream = await self._cluster.exec(self.name, BOX, [PROGRAM, *command], stdin=bool(stdin))
            try:
                async with asyncio.timeout(TOOL_S):
                    feeding = asyncio.create_task(stream.write(stdin))
                    try:
                        return await stream.read_all(doing, most)
                    finally:
                        feeding.cancel()
                        await asyncio.wait({feeding})
            finally:
                await stream.close()
        except (OSError, SandboxError) as error:
            await self._raise_end(error)
            if isinstance(error, SandboxError):
                raise
            raise DaemonUnavailable(f"{doing} broke off: {describe_cause(error)}") from error

    async def _raise_end(self, cause: BaseException) -> None:
        with contextlib.suppress(DaemonUnavailable):
            if (gone := end_error(await self._fetch_pod())) is not None:
                raise type(gone)(f"sandbox {self.name} is gone: {gone}") from cause

    async def _fetch_pod(self) -> Any:
        return await self._cluster.pod(self.name, self._uid)

    async def overran(self) -> str | None:
        try:
            until = time.monotonic() + _STATUS_S
            while True:
                pod = await self._fetch_pod()
                if end_error(pod) is not None:
                    limit = limit_of(pod)
                    return None if limit == "memory" and await self._killed_for_node(pod) else limit
                if self.channel.alive:
                    return await self._reached_limit()
                if time.monotonic() > until:
                    return None
                await asyncio.sleep(0.1)
        except (SandboxError, ValueError):
            return None

    async def _killed_for_node(self, pod: Any) -> bool:
        """Tell whether the pod's node was out of memory when its container was killed for want of memory: its status
        says "OOMKilled" either way, but the kubelet tells of a node in an event. False without the right to read it."""
        of_node = {"kind": "Node", "name": pod["spec"].get("nodeName", "")}
        chosen = [*(f"involvedObject.{name}={value}" for name, value in of_node.items()), "reason=SystemOOM"]
        for pause in (0.0, _EVENT_S):  # it may come later than the status
            await asyncio.sleep(pause)
            try:
                found = await self._cluster.request(
                    "GET", f"/api/v1/namespaces/{NODES}/events", fieldSelector=",".join(chosen)
                )
            except DaemonRefused:
                return False
            if was_killed_during(pod, found.get("items", ())):
                return True
        return False

    async def host_out_of_memory(self) -> bool:
        return await killed_below_limit(self.channel)

    async def _reached_limit(self) -> str | None:
        """Return the limit that a running pod is at."""
        for limit, places in _USAGE.items():
            for pair in places:
                values = (await self.run("show", *(f"/sys/fs/cgroup/{name}" for name in pair))).split()
                if len(values) == 2 and values[1].isdigit() and int(values[0]) >= _FULL * int(values[1]):
                    return limit
        return None
