"""Measures a Docker host: the speed of its sandboxes, its free resources, its clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sandboxes.base import Sandbox, SandboxSpec
from sandboxes.docker.backend import DockerBackend
from sandboxes.docker.daemon.client import daemon_errors

COMMANDS = 20


@dataclass(frozen=True, slots=True)
class HostFigures:
    """The measurements. first_s: from the request for a sandbox to its first command's result; command_s: of a command
    in a session, the median. processors, memory_mb: of the machine; sandboxes: running containers there already.
    clock_s: by which its clock is ahead of ours."""

    first_s: float
    command_s: float
    processors: int
    memory_mb: int
    sandboxes: int
    clock_s: float


async def measure(backend: DockerBackend, image: str) -> HostFigures:
    """Measure the host of an open backend. image: a present one. Raises SandboxError."""
    async with daemon_errors("ask a Docker host what it is"):
        info = await backend.client.system.info()
    began = time.perf_counter()
    async with backend.open(SandboxSpec(image)) as box:
        await box.exec("true")
        first_s = time.perf_counter() - began
        clock_s = await _clock_offset(box)
        session = await box.session()
        took = [await _time(lambda: session.run("true")) for _ in range(COMMANDS)]
    return HostFigures(
        first_s,
        statistics.median(took),
        info["NCPU"],
        info["MemTotal"] // 2**20,
        info["ContainersRunning"],
        clock_s,
    )


async def _time(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def _clock_offset(box: Sandbox) -> float:
    """Return by how many seconds a machine's clock is ahead, to about half of a command's time."""
    before = time.time()
    result = await box.exec("date +%s.%N")
    between = (before + time.time()) / 2
    seconds, _, nanoseconds = result.output.strip().partition(".")
    return float(seconds) + (float(f"0.{nanoseconds}") if nanoseconds.isdigit() else 0.5) - between
