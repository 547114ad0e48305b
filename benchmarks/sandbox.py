"""What a command in a sandbox costs: `python benchmarks/sandbox.py [--boxes 1 32 64] [--rounds 40]`.

With `--starts`: what sandboxes cost from their start to their end, forks, resets, and whole judged rollouts
(`sandbox_starts.py`, `judging.py`).

Side by side in one run: a bare shell on this machine, `docker exec` through the Docker SDK, SWE-ReX (`swe_rex.py`), and
the sandboxes of this project, each command in a fresh shell or in a session. Prints Markdown tables: milliseconds, p50
and p95, commands per second, CPU per command, and the ratios of medians and commands per second to ours.

Concurrent rows run one command after the other in each of N sandboxes at the same time. CPU is that of this process, of
the Docker daemon's and of all containers, so run it on an otherwise idle Docker daemon.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import os
import resource
import statistics
import tarfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import docker
from docker.models.containers import Container
from judging import rollouts
from sandbox_starts import Sizes, live, starts
from swe_rex import SweRex, swe_rex_image, swe_rexes

from envs.tasks.harbor import load_task
from sandboxes.base import Sandbox, SandboxSpec
from sandboxes.docker import DockerBackend, PoolLimits
from sandboxes.docker.executor.sandbox import DockerSandbox
from sandboxes.docker.images.base_image import ensure_base_image

Command = Callable[[], Awaitable[object]]
TASK = Path("envs/swe/starter/replace-host")
MEGABYTE = "head -c 1000000 /dev/zero | tr '\\0' x"
DATA = b"x" * 100_000


async def on_the_host(script: str) -> None:
    process = await asyncio.create_subprocess_exec("/bin/bash", "-c", script, stdout=asyncio.subprocess.PIPE)
    await process.communicate()


def cpu_seconds() -> float:
    """Of this process and its children, of the Docker daemon's processes, and of all containers."""
    own = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    total = sum(usage.ru_utime + usage.ru_stime for usage in own)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            if name.startswith(("dockerd", "containerd")):
                total += sum(map(int, rest.split()[11:15])) / os.sysconf("SC_CLK_TCK")
    v1, v2 = Path("/sys/fs/cgroup/cpuacct/docker/cpuacct.usage"), Path("/sys/fs/cgroup/docker/cpu.stat")
    if v1.exists():
        total += int(v1.read_text()) / 1e9
    elif v2.exists():
        total += int(v2.read_text().split()[1]) / 1e6
    return total


class Table:
    def __init__(self) -> None:
        self.ours = self.rate = 0.0

    def head(self, title: str) -> None:
        print(f"\n| {title} | p50 ms | p95 ms | per second | CPU ms each | p50 to ours | ours per second to it |")
        print("|---|---|---|---|---|---|---|", flush=True)

    async def row(
        self, what: str, commands: Sequence[Command], rounds: int, *, ours: bool = False, seconds: float = 2.0
    ) -> None:
        """One lane for each command, of `rounds` calls and more until it has taken `seconds`. With `ours`, the later
        rows are compared with this one."""
        times: list[float] = []

        async def lane(command: Command) -> None:
            begun, done = time.perf_counter(), 0
            while done < rounds or time.perf_counter() - begun < seconds:
                start = time.perf_counter()
                await command()
                times.append((time.perf_counter() - start) * 1000)
                done += 1

        cpu, start = cpu_seconds(), time.perf_counter()
        await asyncio.gather(*(lane(command) for command in commands))
        wall, cpu = time.perf_counter() - start, cpu_seconds() - cpu
        quantiles = statistics.quantiles(times, n=20)
        p50, p95, rate = quantiles[9], quantiles[18], len(times) / wall
        if ours:
            self.ours, self.rate = p50, rate
        figures = f"{p50:.2f} | {p95:.2f} | {rate:.0f} | {cpu / len(times) * 1000:.2f}"
        print(f"| {what} | {figures} | {p50 / self.ours:.1f}× | {self.rate / rate:.1f}× |", flush=True)


async def commands(table: Table, count: int, spec: SandboxSpec, rex_image: str, rounds: int) -> None:
    daemon = docker.from_env()
    few = max(3, rounds // 8)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(daemon.close)
        pool = stack.enter_context(ThreadPoolExecutor(max_workers=count))
        backend = await stack.enter_async_context(DockerBackend(starter="docker"))
        before = resident_kb()
        boxes = await asyncio.gather(*(stack.enter_async_context(backend.open(spec)) for _ in range(count)))
        containers = [daemon.containers.get(box.id) for box in boxes if isinstance(box, DockerSandbox)]
        print(f"\n{count} sandboxes: {(resident_kb() - before) / count:.0f} KB each in our process,", end=" ")
        print(f"{statistics.median(map(anonymous_kb, containers)):.0f} KB in the container")
        shells = [await box.session() for box in boxes]
        await asyncio.gather(*(shell.run("true") for shell in shells))

        def in_thread(work: Callable[[], object]) -> Command:
            async def command() -> object:
                return await asyncio.get_running_loop().run_in_executor(pool, work)

            return command

        async with swe_rexes(rex_image, count, daemon) as rexes:

            async def rex_row(script: str) -> None:
                async with awake(rexes):
                    await table.row("SWE-ReX session", [partial(r.run, script) for r in rexes], few)

            rex_memory = statistics.median(anonymous_kb(rex.container) for rex in rexes)
            print(f"{count} SWE-ReX containers: {rex_memory:.0f} KB each in the container")
            await paused(rexes)
            for script, label, some in (("echo hi", "echo hi", rounds), (MEGABYTE, "1 MB of output", few)):
                exec_run = [partial(c.exec_run, ["/bin/bash", "-c", script]) for c in containers]
                table.head(f"{label}, {count} at once")
                await table.row("ours, session", [partial(s.run, script) for s in shells], some, ours=True)
                await table.row("ours, fresh shell", [partial(b.exec, script) for b in boxes], some)
                await table.row("host, `bash -c`", [partial(on_the_host, script)] * count, some)
                await table.row("docker exec (SDK)", [in_thread(work) for work in exec_run], few)
                await rex_row(script)
            state = "cd /tmp; x=$((x+1))"
            table.head(f"state: `{state}`, {count} at once")
            await table.row("ours, session", [partial(s.run, state) for s in shells], rounds, ours=True)
            await rex_row(state)
            if count == 1:
                async with awake(rexes):
                    await files(table, boxes[0], containers[0], rexes[0], in_thread, rounds)
            await asyncio.gather(*(asyncio.to_thread(rex.container.unpause) for rex in rexes))


async def paused(rexes: Sequence[SweRex]) -> None:
    """Their servers poll when they have nothing to do, which would be counted as the others' cost."""
    await asyncio.gather(*(asyncio.to_thread(rex.container.pause) for rex in rexes))


@contextlib.asynccontextmanager
async def awake(rexes: Sequence[SweRex]) -> AsyncIterator[None]:
    await asyncio.gather(*(asyncio.to_thread(rex.container.unpause) for rex in rexes))
    yield
    await paused(rexes)


async def files(
    table: Table, box: Sandbox, container: Container, rex: SweRex, in_thread: Callable[..., Command], rounds: int
) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo("file")
        info.size = len(DATA)
        tar.addfile(info, io.BytesIO(DATA))
    table.head("100 KB written")
    await table.row("ours", [lambda: box.write_file("/tmp/file", DATA)], rounds, ours=True)
    await table.row(
        "docker put_archive", [in_thread(lambda: container.put_archive("/tmp", buffer.getvalue()))], rounds // 4
    )
    await table.row("SWE-ReX", [lambda: rex.post("write_file", path="/tmp/file", content=DATA.decode())], rounds)
    table.head("100 KB read")
    await table.row("ours", [lambda: box.read_file("/tmp/file")], rounds, ours=True)
    await table.row(
        "docker get_archive", [in_thread(lambda: b"".join(container.get_archive("/tmp/file")[0]))], rounds // 4
    )
    await table.row("SWE-ReX", [lambda: rex.post("read_file", path="/tmp/file")], rounds)


async def ready_ones(table: Table, spec: SandboxSpec, rounds: int) -> None:
    """What stands ready in the pool. Measured with the Docker daemon's; they don't differ."""
    table.head("from the pool to first command")
    async with DockerBackend(pool=PoolLimits(total=rounds + 1), starter="docker") as backend:
        await filled(backend, spec, rounds + 1)
        async with contextlib.AsyncExitStack() as stack:

            async def warm() -> None:
                box = await stack.enter_async_context(backend.open(spec))
                await box.exec("true")

            await table.row("warm", [warm], rounds, ours=True, seconds=0)
            box = await stack.enter_async_context(backend.open(spec))
        await filled(backend, spec, rounds)
        async with backend.open(spec) as box:
            await table.row("reset, from the pool", [box.reset], rounds - 1, seconds=0)


async def filled(backend: DockerBackend, spec: SandboxSpec, count: int) -> None:
    backend.prepare(spec, count)
    while backend.ready(spec) < count:  # noqa: ASYNC110  nobody tells
        await asyncio.sleep(0.1)


def resident_kb() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def anonymous_kb(container: Container) -> float:
    now: Any = container.stats(stream=False)
    stats = now["memory_stats"]["stats"]
    return float(stats.get("anon", stats.get("rss", 0))) / 1024


async def only_starts(sizes: Sizes, task: Path | None, *, beside_swe_rex: bool) -> None:
    """The table of what sandboxes cost from start to end, of all ways in one run."""
    spec = SandboxSpec(await ensure_base_image(), workdir="/work")
    with swe_rex_image(spec.image) if beside_swe_rex else contextlib.nullcontext() as rex_image:
        await starts(spec, sizes, rex_image)
    if task is not None:
        await rollouts(load_task(task), sizes.repeats)
    if sizes.live:
        await live(spec, sizes.live)


async def main(counts: list[int], rounds: int, sizes: Sizes) -> None:
    spec = SandboxSpec(await ensure_base_image(), workdir="/work")
    table = Table()
    with swe_rex_image(spec.image) as image:
        await starts(spec, sizes, image)
        await ready_ones(table, spec, 12)
        for count in counts:
            await commands(table, count, spec, image, rounds)
        if sizes.live:
            await live(spec, sizes.live)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--boxes", type=int, nargs="+", default=[1, 32, 64], help="sandboxes at once (default: 1 32 64)"
    )
    parser.add_argument("--rounds", type=int, default=40, help="commands per sandbox (default: %(default)s)")
    parser.add_argument("--live", type=int, default=200, help="sandboxes that live at once in the end; 0 for none")
    parser.add_argument("--starts", action="store_true", help="only what sandboxes cost from start to end")
    parser.add_argument("--task", type=Path, default=TASK, help="of the rollouts, with --starts (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="of each figure of --starts (default: %(default)s)")
    parser.add_argument("--depth", type=int, default=50, help="of forks of forks (default: %(default)s)")
    parser.add_argument("--without-swe-rex", action="store_true", help="with --starts: what needs no registry")
    options = parser.parse_args()
    sizes = Sizes(options.repeats, options.live, options.depth)
    if options.starts:
        asyncio.run(only_starts(sizes, options.task, beside_swe_rex=not options.without_swe_rex))
    else:
        asyncio.run(main(options.boxes, options.rounds, sizes))
