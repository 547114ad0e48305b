"""The backend of Docker containers, apart from what the conformance suite tests."""

import pytest

from sandboxes.base import ImageMissing, SandboxError, SandboxSpec
from sandboxes.docker import DockerBackend


async def test_one_that_was_not_entered_says_so():
    with pytest.raises(SandboxError, match="enter the backend first"):
        await DockerBackend().ensure_image("x")


@pytest.mark.docker
async def test_an_image_has_a_size(docker_backend, base_image):
    assert 10 < await docker_backend.image_mb(base_image) < 10_000
    with pytest.raises(ImageMissing):
        await docker_backend.image_mb("no-such-image:1")


@pytest.mark.docker
async def test_a_workdir_is_absolute(docker_backend, base_image):
    with pytest.raises(ValueError, match="absolute path"):
        async with docker_backend.open(SandboxSpec(base_image, workdir="app")):
            pass


@pytest.mark.docker
async def test_a_task_that_names_no_image_gets_the_base_image(docker_backend, base_image):
    assert await docker_backend.ensure_image(None) == base_image
