"""A backend whose sandboxes are started by crun, where that is possible."""

import pytest

from sandboxes.base import SandboxSpec
from sandboxes.docker import DockerBackend
from sandboxes.docker.crun.availability import Obstacle, find_crun
from sandboxes.docker.daemon.client import connect


@pytest.fixture
async def with_crun(base_image):
    async with connect() as client:
        found = find_crun(client, await client.system.info())
    if isinstance(found, Obstacle):
        pytest.skip(found.why)


@pytest.fixture
async def crun_backend(with_crun):
    async with DockerBackend(starter="crun") as backend:
        yield backend


@pytest.fixture
async def crun_box(crun_backend, base_image):
    async with crun_backend.open(SandboxSpec(base_image, workdir="/app")) as box:
        yield box
