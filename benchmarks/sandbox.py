"""What a command in a sandbox costs: `python benchmarks/sandbox.py [--boxes 1 32 64] [--rounds 40]`.

Side by side in one run: a bare shell on this machine, `docker exec` through the Docker SDK, SWE-ReX (installed from
the package registry into a directory of its own, and from there into an image), and the sandboxes of this project,
each command in a fresh shell or in a session. Prints Markdown tables: milliseconds, p50 and p95, commands
per second, CPU per command, and the ratios of medians and commands per second to ours.

SWE-ReX is spoken to over HTTP directly, without its own client, which would only add to its times. Concurrent rows run
one command after the other in each of N sandboxes at the same time. CPU is that of this process, of the Docker daemon's
and of all containers, so run it on an otherwise idle Docker daemon.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import os
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import docker
from docker.models.containers import Container
from sandbox_starts import live, starts

from sandboxes.base import Sandbox, SandboxSpec
from sandboxes.docker import DockerBackend, PoolLimits
from sandboxes.docker.container import DockerSandbox
from sandboxes.docker.images import ensure_base_image

Command = Callable[[], Awaitable[object]]
MEGABYTE = "head -c 1000000 /dev/zero | tr '\\0' x"
DATA = b"x" * 100_000


async def on_the_host(script: str) -> None:
    process = await asyncio.create_subprocess_exec("/bin/bash", "-c", script, stdout=asyncio.subprocess.PIPE)
    await process.communicate()


class SweRex:
    """A SWE-ReX server in a container, with one session, as its Docker deployment makes it."""

    def __init__(self, container: Container, http: aiohttp.ClientSession) -> None:
        self.container = container
        self._http = http
        self._url = f"http://{container.attrs['NetworkSettings']['Networks']['bridge']['IPAddress']}:8000"

    async def post(self, what: str, **body: object) -> object:
        try:
            return await self._post(what, **body)
        except aiohttp.ClientConnectionError:  # it has closed the connection, which was idle for long
            return await self._post(what, **body)

    async def _post(self, what: str, **body: object) -> object:
        async with self._http.post(f"{self._url}/{what}", json=body, headers={"X-API-Key": "benchmark"}) as response:
            response.raise_for_status()
            return await response.json()

    async def run(self, command: str) -> object:
        return await self.post("run_in_session", action_type="bash", command=command, timeout=60)

    async def start(self) -> None:
        for _ in range(600):
            try:
                await self.post("create_session", session_type="bash", startup_timeout=30)
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.2)
            else:
                return
        raise SystemExit("SWE-ReX did not come up")


def swe_rex_image(base: str, daemon: docker.DockerClient) -> str:
    with tempfile.TemporaryDirectory() as directory:
        target = f"{directory}/rex"
        pip = [sys.executable, "-m", "pip", "install", "-q", "--target", target, "--only-binary=:all:", "swe-rex"]
        subprocess.run(pip, check=True, stderr=subprocess.DEVNULL)
        # Copied rather than built: a build needs nothing that this does not have.
        container = daemon.containers.create(base)
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            tar.add(target, "opt/rex")
        container.put_archive("/", buffer.getvalue())
        image = container.commit("atropos-benchmark", "swe-rex")
        container.remove()
    return image.tags[0]


@contextlib.asynccontextmanager
async def swe_rexes(image: str, count: int, daemon: docker.DockerClient) -> AsyncIterator[list[SweRex]]:
    serve = ["python3", "-m", "swerex.server", "--host", "0.0.0.0", "--port", "8000", "--auth-token", "benchmark"]
    containers: list[Container] = []
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            for _ in range(count):
                made = await asyncio.to_thread(
                    daemon.containers.run, image, serve, detach=True, environment={"PYTHONPATH": "/opt/rex"}
                )
                containers.append(made)
                await asyncio.to_thread(made.reload)
            rexes = [SweRex(container, http) for container in containers]
            for some in range(0, count, 8):
                await asyncio.gather(*(rex.start() for rex in rexes[some : some + 8]))
            yield rexes
    finally:
        for container in containers:
            await asyncio.to_thread(container.remove, force=True)


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


async def only_starts(many: int) -> None:
    spec = SandboxSpec(await ensure_base_image(), workdir="/work")
    await starts(spec, 16)
    if many:
        await live(spec, many)


async def main(counts: list[int], rounds: int, many: int) -> None:
    base = await ensure_base_image()
    spec = SandboxSpec(base, workdir="/work")
    daemon = docker.from_env()
    with contextlib.closing(daemon):
        image = await asyncio.to_thread(swe_rex_image, base, daemon)
    table = Table()
    try:
        await starts(spec, 16)
        await ready_ones(table, spec, 12)
        for count in counts:
            await commands(table, count, spec, image, rounds)
        if many:
            await live(spec, many)
    finally:
        with contextlib.closing(docker.from_env()) as daemon:
            daemon.images.remove(image, force=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--boxes", type=int, nargs="+", default=[1, 32, 64], help="sandboxes at once (default: 1 32 64)"
    )
    parser.add_argument("--rounds", type=int, default=40, help="commands per sandbox (default: %(default)s)")
    parser.add_argument("--live", type=int, default=200, help="sandboxes that live at once in the end; 0 for none")
    parser.add_argument(
        "--starts", action="store_true", help="only what starts, forks and resets cost, without SWE-ReX"
    )
    options = parser.parse_args()
    run = only_starts(options.live) if options.starts else main(options.boxes, options.rounds, options.live)
    asyncio.run(run)
