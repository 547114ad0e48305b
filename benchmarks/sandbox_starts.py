"""What a sandbox's start, reset and forks cost, started by the Docker daemon and by crun: a part of `sandbox.py`.

CPU is that of the whole machine, kernel threads included, less what the machine uses when nothing is measured: much of
a start is done by processes that are gone before anybody can ask them. So it is right on an idle machine alone. Beside
it stands that of our process and its descendants, which is all that crun's sandboxes take but for kernel threads;
that can be told on a busy machine too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from sandboxes.base import Limits, SandboxSpec
from sandboxes.docker import DockerBackend

Work = Callable[[], Awaitable[object]]
STARTERS = ("docker", "crun")
_CHANGED = 100 * 2**20


def busy_seconds() -> float:
    """Return what all processors have been busy since the machine's start."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    user, nice, system, _, _, irq, softirq = fields[:7]
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Return the CPU of this process and of those of its descendants that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


class Costs:
    """Prints a table of what things cost, each done some times one after the other."""

    def __init__(self) -> None:
        self._idle = 0.0

    async def begin(self, seconds: float = 3.0) -> None:
        """See what the machine does by itself, and print the head."""
        begun = busy_seconds()
        await asyncio.sleep(seconds)
        self._idle = (busy_seconds() - begun) / seconds
        print(f"\nThe machine by itself: {self._idle * 1000:.0f} ms of CPU each second, which is taken off\n")
        print("| start, first command, removal | CPU ms each (three parts of the run) | of ours | wall ms p50 | p95 |")
        print("|---|---|---|---|---|", flush=True)

    async def row(self, what: str, work: Work, rounds: int, share: int = 1) -> None:
        """share: among how many the cost of one time is shared."""
        times, cpu = [], []
        await work()
        own = own_seconds()
        for _ in range(3):
            begun, busy = time.perf_counter(), busy_seconds()
            for _ in range(rounds):
                start = time.perf_counter()
                await work()
                times.append((time.perf_counter() - start) * 1000 / share)
            await asyncio.sleep(0.2)  # what ends a little later is counted
            wall = time.perf_counter() - begun
            cpu.append((busy_seconds() - busy - self._idle * wall) * 1000 / rounds / share)
        quantiles = statistics.quantiles(times, n=20)
        parts = ", ".join(f"{part:.1f}" for part in sorted(cpu))
        ours = (own_seconds() - own) * 1000 / rounds / 3 / share
        figures = f"{statistics.mean(cpu):.1f} ({parts}) | {ours:.1f} | {quantiles[9]:.1f} | {quantiles[18]:.1f}"
        print(f"| {what} | {figures} |", flush=True)


async def starts(spec: SandboxSpec, rounds: int) -> None:
    """Print what sandboxes of both starters and a bare `docker run` cost. spec: of an image that is there."""
    costs = Costs()
    await costs.begin()

    async def docker_run() -> None:
        command = ["docker", "run", "--rm", "--network=none", spec.image, "true"]
        await asyncio.to_thread(subprocess.run, command, check=True)

    if shutil.which("docker"):
        await costs.row("`docker run --rm`, the command line", docker_run, max(1, rounds // 4))
    for starter in STARTERS:
        async with DockerBackend(starter=starter) as backend:
            await _one(costs, backend, starter, spec, rounds)


async def _one(costs: Costs, backend: DockerBackend, starter: str, spec: SandboxSpec, rounds: int) -> None:
    async def cold() -> None:
        async with backend.open(spec) as box:
            await box.exec("true")

    await costs.row(f"{starter}: a new one", cold, rounds)
    few = rounds if starter == "crun" else 2
    roomy = SandboxSpec(spec.image, spec.workdir, limits=Limits(memory_mb=2048))
    async with backend.open(roomy) as parent:
        await parent.exec(f"head -c {_CHANGED} /dev/urandom >changed")

        async def fork() -> None:
            await parent.write_file("small", os.urandom(8))
            async with parent.fork(4) as boxes:
                await asyncio.gather(*(box.exec("true") for box in boxes))

        await costs.row(f"{starter}: a branch of fork(4), 100 MB changed", fork, few, share=4)
        await parent.exec("(while :; do sleep 60; done) >/dev/null 2>&1 &")  # it would notice another root
        await costs.row(f"{starter}: the same beside a process of the parent's", fork, min(few, 4), share=4)
        await costs.row(f"{starter}: reset", parent.reset, few)


async def live(spec: SandboxSpec, count: int) -> None:
    """Open many at once and see that all answer."""
    for starter in STARTERS:
        async with DockerBackend(starter=starter) as backend, contextlib.AsyncExitStack() as stack:
            async with backend.open(spec) as first:  # what is done once for all
                await first.exec("true")
            start, busy = time.perf_counter(), busy_seconds()
            boxes = await asyncio.gather(*(stack.enter_async_context(backend.open(spec)) for _ in range(count)))
            opened, used = time.perf_counter() - start, busy_seconds() - busy
            start = time.perf_counter()
            answers = await asyncio.gather(*(box.exec("echo $((6 * 7))") for box in boxes))
            answered = time.perf_counter() - start
            right = sum(answer.output == "42\n" for answer in answers)
            print(
                f"\n{starter}: {right} of {count} live sandboxes answer, all within {answered:.2f} s; opened in",
                end=" ",
            )
            print(f"{opened:.1f} s with {used / count * 1000:.0f} ms of CPU each", flush=True)
            start = time.perf_counter()
        print(f"removed in {time.perf_counter() - start:.1f} s", flush=True)
