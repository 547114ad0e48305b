"""SWE-ReX in containers, as its Docker deployment makes them, for comparison: a part of `sandbox.py`.

It is installed from the package registry into a directory of its own, and from there into an image. It is spoken to
over HTTP directly, without its own client, which would only add to its times.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator, Iterator

import aiohttp
import docker
from docker.models.containers import Container


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


@contextlib.contextmanager
def swe_rex_image(base: str) -> Iterator[str]:
    """Make an image with SWE-ReX above `base`, for the block. Yields its name."""
    with contextlib.closing(docker.from_env()) as daemon:
        image = _make_image(base, daemon)
        try:
            yield image
        finally:
            daemon.images.remove(image, force=True)


def _make_image(base: str, daemon: docker.DockerClient) -> str:
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
    return str(image.tags[0])


@contextlib.asynccontextmanager
async def swe_rexes(image: str, count: int, daemon: docker.DockerClient) -> AsyncIterator[list[SweRex]]:
    """Start so many, each with a session, for the block."""
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
