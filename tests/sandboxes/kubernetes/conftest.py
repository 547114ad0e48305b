"""The small API server of the tests' own, and backends on it."""

import pytest
from api_server import ApiServer

from sandboxes.base import SandboxSpec


@pytest.fixture
async def server(tmp_path, base_image):
    async with ApiServer(tmp_path).serving() as serving:
        yield serving


@pytest.fixture
def make(server):
    def backend(**options):
        from sandboxes.kubernetes.backend import KubernetesBackend

        return KubernetesBackend(pods={"kubeconfig": str(server.kubeconfig), **options})

    return backend


@pytest.fixture
def spec(base_image):
    return SandboxSpec(base_image, workdir="/app")
