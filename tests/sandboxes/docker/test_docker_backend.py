"""The backend of Docker containers, apart from what the conformance suite tests."""

import pytest

from sandboxes.base import ImageMissing, SandboxError, SandboxSpec
from sandboxes.docker import DockerBackend
from sandboxes.docker.backend import _may_have_quotas, unlimited


def test_a_daemon_that_cannot_limit_says_so():
    assert unlimited({"MemoryLimit": True, "PidsLimit": True}) == []
    assert unlimited({"MemoryLimit": False, "SwapLimit": True, "PidsLimit": False}) == ["memory", "processes"]


def test_quotas_are_asked_for_where_the_storage_may_have_them():
    for info, may in [
        ({"Driver": "btrfs"}, True),
        ({"Driver": "overlay2", "DriverStatus": [["Backing Filesystem", "xfs"]]}, True),
        ({"Driver": "overlay2", "DriverStatus": [["Backing Filesystem", "extfs"]]}, False),
        ({"Driver": "overlay2", "DriverStatus": None}, False),
    ]:
        assert _may_have_quotas(info) is may


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
