"""The way to a cluster."""

import asyncio
import sys

import pytest

LONGEST_PAUSE = """
import asyncio, contextlib, sys, time
from sandboxes.base import DaemonUnavailable
from sandboxes.kubernetes.cluster import Cluster
from sandboxes.kubernetes.options import PodOptions

async def main():
    pauses = []
    async def ticks():
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            pauses.append(time.perf_counter() - before)
    ticking = asyncio.create_task(ticks())
    began = time.perf_counter()
    with contextlib.suppress(DaemonUnavailable):
        async with Cluster.connect(PodOptions(kubeconfig=sys.argv[1])):
            pass
    print(max(pauses), time.perf_counter() - began)

asyncio.run(main())
"""


async def test_the_library_is_imported_beside_the_event_loop(tmp_path):
    """In a process of its own, in which nothing has imported it yet."""
    pytest.importorskip("kubernetes_asyncio")
    done = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LONGEST_PAUSE, str(tmp_path / "none")), stdout=asyncio.subprocess.PIPE
    )
    said, _ = await done.communicate()
    longest_s, took_s = map(float, said.split())
    assert longest_s < took_s / 2
