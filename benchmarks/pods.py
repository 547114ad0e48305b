"""What sandboxes in pods cost beside those of the Docker daemon: `python benchmarks/pods.py KUBECONFIG [--pods YAML]`.

Prints a Markdown table, with both in turns. The image has to be on the cluster's nodes and on the daemon. CPU is that
of this process and its children: neither a daemon's nor a cluster's.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import yaml

from sandboxes.base import Backend, Sandbox, SandboxSpec
from sandboxes.docker import DockerBackend
from sandboxes.docker.images.base_image import BASE_IMAGE
from sandboxes.kubernetes.backend import KubernetesBackend

COMMANDS, AT_ONCE = 200, 20
MEGABYTE = os.urandom(1_000_000)
Figures = defaultdict[str, list[float]]


def own_seconds() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


async def timed(work: Awaitable[object]) -> float:
    start = time.perf_counter()
    await work
    return (time.perf_counter() - start) * 1000


async def first_command(stack: AsyncExitStack, backend: Backend, spec: SandboxSpec) -> Sandbox:
    box = await stack.enter_async_context(backend.open(spec))
    assert (await box.exec("echo $((6 * 7))")).output == "42\n"
    return box


async def one(backend: Backend, spec: SandboxSpec, figures: Figures) -> None:
    """The life of a sandbox."""
    async with AsyncExitStack() as stack:
        cpu, start = own_seconds(), time.perf_counter()
        box = await first_command(stack, backend, spec)
        figures["first command's result after `open` began, ms"].append((time.perf_counter() - start) * 1000)
        so_far = own_seconds() - cpu
        figures["1 MB written, ms"].append(await timed(box.write_file("file", MEGABYTE)))
        figures["1 MB read, ms"].append(await timed(box.read_file("file")))
        cpu, commands = own_seconds(), [await timed(box.exec("true")) for _ in range(COMMANDS // 4)]
        figures["a command, ms"] += commands
        figures["our CPU for a command, ms"].append((own_seconds() - cpu) * 1000 / len(commands))
        cpu = own_seconds()
        figures["until its block has ended, ms"].append(await timed(stack.aclose()))
        figures["our CPU for a sandbox with one command, ms"].append((so_far + own_seconds() - cpu) * 1000)


async def many(backend: Backend, spec: SandboxSpec, figures: Figures) -> None:
    async with AsyncExitStack() as stack:
        opened = figures[f"{AT_ONCE} at once: first command's result, ms"]
        opened += await asyncio.gather(*(timed(first_command(stack, backend, spec)) for _ in range(AT_ONCE)))
        figures[f"{AT_ONCE} at once: all blocks ended, ms"].append(await timed(stack.aclose()))


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kubeconfig", type=Path)
    parser.add_argument("--pods", default="", metavar="YAML", help="options of pods, as a mapping")
    parser.add_argument("--image", default=BASE_IMAGE)
    parser.add_argument("--rounds", type=int, default=6)
    given = parser.parse_args()
    options = {"kubeconfig": str(given.kubeconfig)} | (yaml.safe_load(given.pods) or {})
    spec = SandboxSpec(given.image, workdir="/app")
    async with KubernetesBackend(pods=options) as pods, DockerBackend(starter="docker") as daemon:
        backends: dict[str, Backend] = {"pods": pods, "Docker daemon": daemon}
        found: dict[str, Figures] = {name: defaultdict(list) for name in backends}
        measures: list[tuple[Callable[[Backend, SandboxSpec, Figures], Awaitable[None]], int]] = [
            (one, given.rounds),
            (many, 1),
        ]
        for backend in backends.values():  # what is done once for all
            await one(backend, spec, defaultdict(list))
        for measure, rounds in measures:
            for _ in range(rounds):
                for name, backend in backends.items():
                    await measure(backend, spec, found[name])
                    await asyncio.sleep(2.0)  # what is removed goes in the background
    print(f"| p50 (most) | {' | '.join(found)} | n |\n|---|---|---|---|")
    for row, values in found["pods"].items():
        cells = (f"{statistics.median(of[row]):.3g} ({max(of[row]):.3g})" for of in found.values())
        print(f"| {row} | {' | '.join(cells)} | {len(values)} |")


if __name__ == "__main__":
    asyncio.run(main())
