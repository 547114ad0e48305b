"""Answers of an API server as exceptions."""

import asyncio
import sys

import pytest

from sandboxes.base import DaemonRefused, SandboxDied, SandboxError
from sandboxes.kubernetes import cluster

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


@pytest.mark.parametrize(
    ("status", "message", "error"),
    [
        (401, "Unauthorized", DaemonRefused),
        (403, "pods is forbidden: User cannot create", DaemonRefused),
        (403, 'pods "a" is forbidden: exceeded quota: boxes', cluster.QuotaExceeded),
        (404, "not found", SandboxDied),
        (409, "already exists", cluster.Conflict),
        (410, "too old resource version", cluster.Expired),
        (422, "is invalid", SandboxError),
        (429, "too many requests", cluster.Busy),
        (500, "etcdserver: leader changed", cluster.Busy),
    ],
)
def test_each_refusal_is_told_apart(status, message, error):
    assert type(cluster.failure(status, message, "POST pods")) is error


async def test_the_library_is_imported_beside_the_event_loop(tmp_path):
    """In a process of its own, in which nothing has imported it yet."""
    pytest.importorskip("kubernetes_asyncio")
    done = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LONGEST_PAUSE, str(tmp_path / "none")), stdout=asyncio.subprocess.PIPE
    )
    said, _ = await done.communicate()
    longest_s, took_s = map(float, said.split())
    assert longest_s < took_s / 2
