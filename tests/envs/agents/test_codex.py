"""Codex in a container without network. Its package is installed, once, where it is asked for."""

import pytest
from real_agents import Does, Says, at_work, check_linear, check_server

from atropos_agent.types import StopReason

pytestmark = [pytest.mark.slow, pytest.mark.docker, pytest.mark.timeout(900)]


async def test_linear_work_is_one_row(docker_backend, base_image, fitted):
    await check_linear(docker_backend, base_image, "codex", fitted)


async def test_a_tool_of_an_mcp_server_is_in_its_row(docker_backend, base_image, hermes):
    await check_server(docker_backend, base_image, "codex", hermes, "mcp__numbers__add")


async def test_what_it_compacts_goes_on_in_a_row_of_its_own(docker_backend, base_image, native):
    """Its window is full after the third command: it asks for a summary, and begins anew with that."""
    script = [
        *(Does("seq 1 1400"), Does("seq 1 600"), Does("true")),
        *(Says("I have counted."), Does("echo hi >/app/f"), Says("Done.")),
    ]
    budgets = {"max_total_tokens": 19_000}
    async with at_work(docker_backend, base_image, "codex", native, script, **budgets) as worked:
        assert (await worked.sandbox.exec("cat /app/f")).output == "hi\n"
    assert worked.result.stop_reason is StopReason.ANSWERED, worked.result.error
    rows = [(row.branch, row.turns) for row in worked.result.segments]
    assert rows == [("main", 3), ("main", 2), ("summary", 1)]
    assert worked.control >= 3
