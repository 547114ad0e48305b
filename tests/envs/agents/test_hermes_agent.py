"""Hermes Agent in a container without network. Its package is installed, once, where it is asked for."""

import pytest
from real_agents import check_linear

pytestmark = [pytest.mark.slow, pytest.mark.docker, pytest.mark.timeout(900)]


async def test_linear_work_is_one_row(docker_backend, base_image, fitted):
    await check_linear(docker_backend, base_image, "hermes-agent", fitted)
