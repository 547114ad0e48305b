"""Qwen Code in a container without network. Its package is installed, once, where it is asked for."""

import pytest
from real_agents import PUBLISHED, check_linear, check_published

pytestmark = [pytest.mark.slow, pytest.mark.docker, pytest.mark.timeout(900)]


async def test_linear_work_is_one_row(docker_backend, base_image, fitted):
    await check_linear(docker_backend, base_image, "qwen-code", fitted)


@pytest.mark.parametrize("server", PUBLISHED)
async def test_a_published_mcp_server_answers_it(docker_backend, base_image, hermes, server):
    await check_published(docker_backend, base_image, "qwen-code", hermes, server, "mcp__{}__{}")
