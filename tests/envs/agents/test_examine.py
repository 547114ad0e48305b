"""What `doctor` says of a foreign agent."""

from dataclasses import replace
from functools import partial

import pytest
from small_agent import AGENT, SCRIPT, start

from atropos_agent.types import AgentConfig
from envs.agents.examine import examine_agent
from envs.checks import Status
from sandboxes.base import SandboxSpec


@pytest.mark.docker
async def test_it_is_measured_or_told_why_it_cannot_be(docker_backend, base_image, hermes):
    async def checks(agent, **budgets):
        spec = SandboxSpec(base_image, workdir="/app")
        found = examine_agent(agent, docker_backend, spec, hermes, AgentConfig(**budgets))
        return [check async for check in found]

    agent, rows = await checks(AGENT, max_total_tokens=4096)
    assert (agent.status, rows.status) == (Status.OK, Status.OK)
    assert 20 < agent.data["opening"] < 400
    assert "1 row of linear work" in rows.text
    agent, _ = await checks(AGENT, max_total_tokens=100, max_tokens=90)
    assert agent.status is Status.WRONG and "--env.max_token_length 100: raise that" in agent.text
    (broken,) = await checks(replace(AGENT, start=partial(start, script="raise SystemExit(9)\n" + SCRIPT)))
    assert broken.status is Status.WRONG and "did not start" in broken.text
