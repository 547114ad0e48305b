"""What starts, resets and forks cost, of the Docker daemon's sandboxes, crun's and others: a part of `sandbox.py`.

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
from dataclasses import dataclass, replace
from pathlib import Path

import docker
from swe_rex import swe_rexes

from sandboxes.base import Limits, Sandbox, SandboxSpec
from sandboxes.docker import DockerBackend

Work = Callable[[], Awaitable[object]]
STARTERS = ("docker", "crun")
_CHANGED = 100 * 2**20
_PARENTS = 4


def busy_seconds() -> float:
    """Return what all processors have been busy since the machine's start."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    user, nice, system, _, _, irq, softirq = fields[:7]
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Return the CPU of this process and of those of its descendants that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured. repeats: of each figure. live: sandboxes at once. depth: of forks of forks."""

    repeats: int = 5
    live: int = 200
    depth: int = 50


class Costs:
    """Prints a table of what things cost, each done some times one after the other, and that again some times."""

    def __init__(self, repeats: int = 5) -> None:
        self._idle = 0.0
        self._repeats = repeats

    async def begin(self, seconds: float = 3.0) -> None:
        """See what the machine does by itself, and print the head."""
        begun = busy_seconds()
        await asyncio.sleep(seconds)
        self._idle = (busy_seconds() - begun) / seconds
        print(f"\nThe machine by itself: {self._idle * 1000:.0f} ms of CPU each second, which is taken off\n")
        print(f"| {self._repeats} repeats | CPU ms of all processes: median (least, most) | of ours: median", end=" ")
        print("| wall ms p50 | p95 |\n|---|---|---|---|---|", flush=True)

    async def row(self, what: str, work: Work, rounds: int, share: int = 1, repeats: int = 0) -> None:
        """rounds: of `work` in a repeat. share: among how many the cost of one time is shared."""
        times, cpu, own = [], [], []
        await work()
        for _ in range(repeats or self._repeats):
            begun, busy, mine = time.perf_counter(), busy_seconds(), own_seconds()
            for _ in range(rounds):
                start = time.perf_counter()
                await work()
                times.append((time.perf_counter() - start) * 1000 / share)
            await asyncio.sleep(0.2)  # what ends a little later is counted
            wall = time.perf_counter() - begun
            cpu.append((busy_seconds() - busy - self._idle * wall) * 1000 / rounds / share)
            own.append((own_seconds() - mine) * 1000 / rounds / share)
        p95 = sorted(times)[min(len(times) - 1, round(0.95 * len(times)))]
        figures = f"{statistics.median(cpu):.1f} ({min(cpu):.1f}, {max(cpu):.1f}) | {statistics.median(own):.1f}"
        print(f"| {what} | {figures} | {statistics.median(times):.1f} | {p95:.1f} |", flush=True)


async def starts(spec: SandboxSpec, sizes: Sizes, rex_image: str | None = None) -> None:
    """Print what a bare `docker run`, SWE-ReX and sandboxes of both starters cost. spec: of an image that is there."""
    costs = Costs(sizes.repeats)
    await costs.begin()

    async def docker_run() -> None:
        command = ["docker", "run", "--rm", "--network=none", spec.image, "true"]
        await asyncio.to_thread(subprocess.run, command, check=True)

    if shutil.which("docker"):
        await costs.row("`docker run --rm`: start, command, removal", docker_run, 4)
    if rex_image is not None:
        with contextlib.closing(docker.from_env()) as daemon:

            async def swe_rex() -> None:
                async with swe_rexes(rex_image, 1, daemon) as (rex,):
                    await rex.run("true")

            await costs.row("SWE-ReX: start, first command, removal", swe_rex, 2)
    for starter in STARTERS:
        async with DockerBackend(starter=starter) as backend:
            await _lives(costs, backend, starter, spec)
            await _forks(costs, backend, starter, spec, sizes.depth)


async def _lives(costs: Costs, backend: DockerBackend, starter: str, spec: SandboxSpec) -> None:
    rounds = 16 if starter == "crun" else 4

    async def cold() -> None:
        async with backend.open(spec) as box:
            await box.exec("true")

    await costs.row(f"{starter}: start, first command, removal", cold, rounds)
    if starter == "crun":
        used = replace(spec, shared="benchmark")

        async def handed_on() -> None:
            async with backend.open(used) as box:
                await box.exec("true")
                await box.stop()

        await costs.row(f"{starter}: open, command, stop, handed on to the next", handed_on, rounds)
    async with backend.open(spec) as box:

        async def reset() -> None:
            await box.write_file("changed", b"x")
            await box.reset()

        await costs.row(f"{starter}: reset, a file changed", reset, rounds)

        async def reset_after_work() -> None:
            shell = await box.session()
            await shell.run("(while :; do sleep 60; done) >/dev/null 2>&1 & head -c 1M /dev/zero >large")
            await box.reset()

        await costs.row(f"{starter}: a session, a command that leaves a process, reset", reset_after_work, rounds)


async def _forks(costs: Costs, backend: DockerBackend, starter: str, spec: SandboxSpec, depth: int) -> None:
    few, repeats = (8, 0) if starter == "crun" else (1, 2)  # the Docker daemon's take seconds
    roomy = SandboxSpec(spec.image, spec.workdir, limits=Limits(memory_mb=2048))
    async with backend.open(roomy) as parent:
        await parent.exec(f"head -c {_CHANGED} /dev/urandom >changed")

        async def fork() -> None:
            await _branch(parent)

        await costs.row(f"{starter}: a branch of fork(4), 100 MB changed", fork, few, share=4, repeats=repeats)
        await parent.exec("(while :; do sleep 60; done) >/dev/null 2>&1 &")  # it would notice another root
        await costs.row(f"{starter}: the same beside a process of the parent's", fork, few, share=4, repeats=repeats)
    async with contextlib.AsyncExitStack() as stack:
        parents = [await stack.enter_async_context(backend.open(roomy)) for _ in range(_PARENTS)]
        await asyncio.gather(*(parent.exec(f"head -c {_CHANGED} /dev/urandom >changed") for parent in parents))

        async def together() -> None:
            await asyncio.gather(*map(_branch, parents))

        what = f"{starter}: {_PARENTS} parents at once, each branch"
        await costs.row(what, together, few, share=4 * _PARENTS, repeats=repeats)
    async with backend.open(spec) as first:

        async def deep() -> None:
            async with contextlib.AsyncExitStack() as stack:
                box: Sandbox = first
                for level in range(depth):
                    await box.write_file(f"level-{level}", b"x")
                    (box,) = await stack.enter_async_context(box.fork(1))
                assert len((await box.exec("ls")).output.split()) >= depth

        if depth:
            what = f"{starter}: a fork of a fork, {depth} deep, each"
            await costs.row(what, deep, 1, share=depth, repeats=0 if starter == "crun" else 1)


async def _branch(parent: Sandbox) -> None:
    """Fork a sandbox four times, after a change of its files, and run a command in each."""
    await parent.write_file("small", os.urandom(8))
    async with parent.fork(4) as boxes:
        await asyncio.gather(*(box.exec("true") for box in boxes))


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
