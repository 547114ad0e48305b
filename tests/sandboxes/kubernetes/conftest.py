"""The small API server of the tests' own, and backends on it."""

import pytest
from api_server import ApiServer

from sandboxes.base import SandboxSpec
from sandboxes.kubernetes.backend import KubernetesBackend


@pytest.fixture
async def server(tmp_path, base_image):
    pytest.importorskip("kubernetes_asyncio")
    async with ApiServer(tmp_path).serving() as serving:
        yield serving


@pytest.fixture
def make(server):
    def backend(**options):
        return KubernetesBackend(pods={"kubeconfig": str(server.kubeconfig), **options})

    return backend


@pytest.fixture
def spec(base_image):
    return SandboxSpec(base_image, workdir="/app")
