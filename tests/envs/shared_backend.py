"""One Docker backend for all tests of a worker, in the rooms whose conftest.py has this fixture and this hook."""

from __future__ import annotations

from pathlib import Path

import pytest
import pytest_asyncio

from sandboxes.docker import DockerBackend

ROOMS = [Path(__file__).parent / name for name in ("checking", "judging")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have the tests with a Docker backend share it, and so their event loop: it opens once for each worker."""
    for item in items:
        if any(map(item.path.is_relative_to, ROOMS)) and "docker_backend" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def docker_backend(base_image):
    async with DockerBackend(base_image=base_image) as backend:
        yield backend
