"""Where a foreign agent makes room: the real one works until its window is full."""

from dataclasses import replace
from functools import partial

import pytest
from small_agent import AGENT, SCRIPT, start

from atropos_agent.types import AgentConfig
from envs.agents.examine import examine_agent
from envs.agents.naming import FOREIGN
from envs.cli.checks import Status
from sandboxes.base import SandboxSpec

COMPACTS = SCRIPT.replace("    message = ask()\n", "    shorten()\n    message = ask()\n").replace(
    "messages = [",
    """def shorten():
    global TOOLS
    if len(str(messages)) > 6000:
        messages.append({"role": "user", "content": "Give a summary."})
        kept, TOOLS = TOOLS, []
        said, TOOLS = ask()["content"], kept
        messages[:] = [{"role": "user", "content": "Before: " + said}]
messages = [""",
)


@pytest.mark.docker
@pytest.mark.parametrize("script", [SCRIPT, COMPACTS])
async def test_where_it_makes_room_in_this_window_is_told(docker_backend, base_image, hermes, script):
    agent = replace(AGENT, start=partial(start, script=script))
    budgets = AgentConfig(max_total_tokens=4096, max_tokens=256)
    found = examine_agent(agent, docker_backend, SandboxSpec(base_image, workdir="/app"), hermes, budgets)
    room = [check async for check in found][-1]
    if script == SCRIPT:
        assert room.status is Status.NOTE and "makes no room in 4,096 tokens" in room.text
    else:
        assert room.status is Status.OK and "by a summary" in room.text
        assert 500 < room.data["at"] < 4096 and room.data["tokens_saved"] > 0


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("agent", "window"), [("codex", 24_000), ("claude-code", 60_000)])
async def test_real_agents_make_room_before_their_window_is_full(docker_backend, base_image, hermes, agent, window):
    budgets = AgentConfig(max_total_tokens=window, max_tokens=2048)
    spec = SandboxSpec(base_image, workdir="/app")
    checks = [check async for check in examine_agent(FOREIGN[agent], docker_backend, spec, hermes, budgets)]
    print(agent, [(check.name, check.text) for check in checks])
    assert checks[-1].status is Status.OK, checks[-1].text
    assert checks[0].data["opening"] < checks[-1].data["at"] < window
