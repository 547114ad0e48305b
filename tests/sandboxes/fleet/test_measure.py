"""What is measured of a Docker host."""

import pytest

from sandboxes.fleet import measure


@pytest.mark.docker
async def test_this_machines_daemon_is_measured(docker_backend, base_image):
    found = await measure(docker_backend, base_image)
    assert 0 < found.command_s < found.first_s
    assert found.processors >= 1 and found.memory_mb > 100
    assert abs(found.clock_s) < 2, "it is our own clock"
