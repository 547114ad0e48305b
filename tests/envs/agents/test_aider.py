"""aider in a container without network. Its package is installed, once, where it is asked for."""

import pytest
from real_agents import Says, at_work

from atropos_agent.types import AgentConfig, StopReason
from envs.agents.examine import examine_agent
from envs.agents.naming import FOREIGN
from envs.cli.checks import Status
from sandboxes.base import SandboxSpec

pytestmark = [pytest.mark.slow, pytest.mark.docker, pytest.mark.timeout(900)]


async def test_its_edits_are_made_also_after_one_that_failed(docker_backend, base_image, fitted):
    edits = FOREIGN["aider"].edits
    wrong = edits("one.txt", "hi").replace("SEARCH\n", "SEARCH\nnothing of this\n")
    script = [Says(wrong), Says(edits("one.txt", "hi"))]
    async with at_work(docker_backend, base_image, "aider", fitted, script) as worked:
        assert (await worked.sandbox.exec("cat /app/one.txt; ls -A /app")).output == "hi\none.txt\n"
    assert worked.result.stop_reason is StopReason.ANSWERED, worked.result.error
    assert worked.told["branches"] == {"main": 2}
    assert sum(row.turns for row in worked.result.segments) == 2


async def test_doctor_measures_its_opening(docker_backend, base_image, hermes):
    spec, budgets = SandboxSpec(base_image, workdir="/app"), AgentConfig(max_total_tokens=32768)
    checks = [check async for check in examine_agent(FOREIGN["aider"], docker_backend, spec, hermes, budgets)]
    assert [check.status for check in checks] == [Status.OK, Status.OK], [check.text for check in checks]
    assert checks[0].data["opening"] == pytest.approx(FOREIGN["aider"].opening, rel=0.1), checks[0].text
