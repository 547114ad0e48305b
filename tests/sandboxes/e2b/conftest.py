"""The small E2B server of the tests' own, and backends on it."""

import pytest
from e2b_server import KEY, TEMPLATE
from on_server import serving

from sandboxes.base import SandboxSpec
from sandboxes.e2b.backend import E2BBackend


@pytest.fixture
async def server(base_image, monkeypatch):
    monkeypatch.setenv("E2B_API_KEY", KEY)
    async with serving() as one:
        yield one


@pytest.fixture
def make(server):
    def backend(**options):
        return E2BBackend(e2b={"api_url": server.url, "sandbox_url": server.url, **options})

    return backend


@pytest.fixture
def spec():
    return SandboxSpec(TEMPLATE, workdir="/app")
