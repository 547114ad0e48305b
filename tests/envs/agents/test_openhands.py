"""OpenHands in a container without network. Its package is installed, once, where it is asked for."""

import pytest
from images import made
from real_agents import Says, at_work, check_linear

from atropos_agent.types import StopReason

pytestmark = [pytest.mark.slow, pytest.mark.docker, pytest.mark.timeout(900)]


@pytest.fixture
async def image(base_image):
    """It needs Python 3.12."""
    return await made("trixie", base_image)


async def test_linear_work_is_one_row(docker_backend, image, fitted):
    await check_linear(docker_backend, image, "openhands", fitted)


async def test_its_tool_for_the_end_submits(docker_backend, image, hermes):
    call = '<tool_call>\n{"name": "finish", "arguments": {"message": "Done."}}\n</tool_call>'
    async with at_work(docker_backend, image, "openhands", hermes, [Says(call)]) as worked:
        assert worked.result.stop_reason is StopReason.SUBMITTED, worked.result.error
