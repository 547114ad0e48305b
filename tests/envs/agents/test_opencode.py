"""OpenCode in a container without network. Its package is installed, once, where it is asked for."""

import pytest
from real_agents import check_linear, check_server, check_sub_agents

pytestmark = [pytest.mark.slow, pytest.mark.docker, pytest.mark.timeout(900)]


async def test_linear_work_is_one_row(docker_backend, base_image, fitted):
    await check_linear(docker_backend, base_image, "opencode", fitted)


async def test_a_tool_of_an_mcp_server_is_in_its_row(docker_backend, base_image, hermes):
    await check_server(docker_backend, base_image, "opencode", hermes, "numbers_add")


async def test_two_sub_agents_at_once_are_rows_of_their_own(docker_backend, base_image, native):
    await check_sub_agents(docker_backend, base_image, "opencode", native, "task", "general")
