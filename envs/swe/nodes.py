"""The nodes of a Ray cluster as `doctor` sees them: each is measured by a process there, as rollouts would find it."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_agent.engines.protocols import open_server
from envs.cli.checks import Check, Status
from envs.options import EngineConfig
from envs.records.atif import PACKAGE_VERSION
from envs.running.failures import attribute_errors
from envs.running.remote.folders import Folders, pack, restore_paths, unpack
from envs.running.remote.messages import RemoteFailure, WorkerGoneError, WorkerUnreachableError
from envs.swe.config import SWEEnvConfig
from envs.types import Failure, InfraError, Task
from sandboxes.docker import DockerBackend
from sandboxes.fleet import HostFigures, measure
from sandboxes.plurals import plural
from sandboxes.shielding import run_concurrently

if TYPE_CHECKING:  # Ray need not be installed
    from envs.running.remote.on_ray import RayCluster

LOOK_S = 900.0
"""How long a node may take, in seconds: the image may have to be built there."""
CLOCK_S = 5.0
"""Tolerated difference of a machine's clock from ours, without a note: builds compare times."""


class NodeDoctor:
    """Examines its own node."""

    async def clock(self) -> float:
        """Return the time there, in seconds since 1970."""
        return time.time()

    async def look(
        self,
        version: str,
        config: SWEEnvConfig,
        engines: Sequence[EngineConfig],
        task: Task,
        folders: Mapping[str, bytes],
    ) -> HostFigures | RemoteFailure:
        """Ask the inference servers, and measure a sandbox of a task's image. Returns the obstacle, if there
        is one. folders: of the task, packed, by digest."""
        try:
            with attribute_errors():
                if version != PACKAGE_VERSION:
                    what = f"atropos-agent {PACKAGE_VERSION} is installed there, and {version} here"
                    raise InfraError(Failure.ENVIRONMENT, what)
                for engine in engines:
                    async with open_server(engine) as server:
                        await server.connect()
                with tempfile.TemporaryDirectory() as folder:
                    for digest, packed in folders.items():
                        await asyncio.to_thread(unpack, packed, Path(folder, digest))
                    return await _measure(config, restore_paths(task, Path(folder)))
        except InfraError as error:
            return RemoteFailure.of(error)


async def _measure(config: SWEEnvConfig, task: Task) -> HostFigures:
    backend = DockerBackend(
        base_image=config.base_image, runtime=config.sandbox_runtime, starter=config.sandbox_starter
    )
    async with backend:
        return await measure(backend, await backend.ensure_image(task.image, task.context))


async def examine_nodes(
    cluster: RayCluster, config: SWEEnvConfig, engines: Sequence[EngineConfig], task: Task
) -> AsyncIterator[Check]:
    """Measure each node of a cluster, all at the same time. A part missing on one of them is a note: the node would be
    left out."""
    try:
        async with cluster:
            nodes = sorted(await cluster.nodes())
            wanted = ",".join(f"{name}={amount:g}" for name, amount in config.ray.resources.items())
            if not nodes:
                text = f"no node of {config.ray.address} has {wanted}; start one, or set --env.ray.resources"
                yield Check("nodes", Status.WRONG, text)
                return
            for check in await run_concurrently(_examine(cluster, node, config, engines, task) for node in nodes):
                yield check
    except ConnectionError as error:
        yield Check("nodes", Status.WRONG, str(error))


async def _examine(
    cluster: RayCluster, node: str, config: SWEEnvConfig, engines: Sequence[EngineConfig], task: Task
) -> Check:
    name = f"node {node}"
    sent, used = await asyncio.to_thread(Folders().replace_paths, task)
    packed = {digest: await asyncio.to_thread(pack, path) for digest, path in used.items()}
    try:
        async with asyncio.timeout(LOOK_S):
            # Without the workers' resources, which a run may have taken.
            link = await cluster.place(node, NodeDoctor, {})
            try:
                before = time.time()
                there = await link.call("clock")
                ahead_s = there - (before + time.time()) / 2
                found = await link.call("look", PACKAGE_VERSION, config, engines, sent, packed)
            finally:
                await link.kill()
    except (WorkerGoneError, WorkerUnreachableError, TimeoutError) as error:
        return Check(name, Status.NOTE, f"can't be used for now: {error or f'no answer within {LOOK_S:g} s'}")
    if isinstance(found, RemoteFailure):
        return Check(name, Status.NOTE, f"can't be used for now: {found.kind}: {found.message}")
    return machine_check(name, replace(found, clock_s=ahead_s))


def machine_check(name: str, found: HostFigures) -> Check:
    """Return the report about a measured machine."""
    text = (
        f"{plural(found.processors, 'CPU')}, {found.memory_mb / 1024:.0f} GiB, {plural(found.sandboxes, 'container')}; "
        f"first command after {found.first_s:.2f} s, then {1000 * found.command_s:.1f} ms each; "
        f"clock {found.clock_s:+.1f} s"
    )
    data: dict[str, Any] = asdict(found)
    return Check(name, Status.OK if abs(found.clock_s) < CLOCK_S else Status.NOTE, text, data)
