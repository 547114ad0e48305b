"""Claude Code in a container without network. Its package is installed, once, where it is asked for."""

import pytest
from real_agents import PUBLISHED, check_linear, check_published, check_sub_agents

pytestmark = [pytest.mark.slow, pytest.mark.docker, pytest.mark.timeout(900)]


async def test_linear_work_is_one_row(docker_backend, base_image, fitted):
    await check_linear(docker_backend, base_image, "claude-code", fitted)


async def test_two_sub_agents_at_once_are_rows_of_their_own(docker_backend, base_image, native):
    await check_sub_agents(docker_backend, base_image, "claude-code", native, "Agent", "general-purpose")


@pytest.mark.parametrize("server", PUBLISHED)
async def test_a_published_mcp_server_answers_it(docker_backend, base_image, hermes, server):
    await check_published(docker_backend, base_image, "claude-code", hermes, server, "mcp__{}__{}")
