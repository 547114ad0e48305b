"""Terminus 2 in a container without network. Its package is installed, once, where it is asked for."""

import pytest
from images import made
from real_agents import Says, at_work

from atropos_agent.types import AgentConfig, StopReason
from envs.agents.examine import examine_agent
from envs.agents.naming import FOREIGN
from envs.cli.checks import Status
from sandboxes.base import SandboxSpec

pytestmark = [pytest.mark.slow, pytest.mark.docker, pytest.mark.timeout(900)]


@pytest.fixture
async def image(base_image):
    return await made("trixie", base_image)


async def test_its_keystrokes_are_typed_and_its_work_is_one_row(docker_backend, image, fitted):
    agent = FOREIGN["terminus-2"]
    script = [Says(agent.edits("one.txt", "hi")), Says("no JSON"), Says(agent.done), Says(agent.done)]
    async with at_work(docker_backend, image, "terminus-2", fitted, script) as worked:
        assert (await worked.sandbox.exec("cat /app/one.txt; ls -A /app")).output == "hi\none.txt\n"
        first, prompt = (fitted.template.decode(one.prompt) for one in worked.exchanges[:2])
    assert "/app#" in first, "its first screen has the shell's prompt"
    assert "cat >one.txt" in prompt, "it sees its terminal"
    assert worked.result.stop_reason is StopReason.ANSWERED, worked.result.error
    assert [row.turns for row in worked.result.segments] == [4], worked.told


async def test_doctor_measures_its_opening(docker_backend, image, hermes):
    spec, budgets = SandboxSpec(image, workdir="/app"), AgentConfig(max_total_tokens=32768)
    checks = [check async for check in examine_agent(FOREIGN["terminus-2"], docker_backend, spec, hermes, budgets)]
    assert [check.status for check in checks] == [Status.OK, Status.OK], [check.text for check in checks]
    assert checks[0].data["opening"] == pytest.approx(FOREIGN["terminus-2"].opening, rel=0.1), checks[0].text
