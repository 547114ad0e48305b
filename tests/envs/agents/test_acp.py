"""Agents that are given their task over the Agent Client Protocol."""

import json
from dataclasses import replace

import pytest
from real_agents import check_linear

from envs.agents import naming, opencode
from envs.agents.acp import over_acp
from envs.agents.facts import Place, Start


def test_the_agents_own_start_is_kept_and_its_task_goes_to_the_client():
    start = over_acp(lambda at: Start(["agent", "acp", *at.task], {"A": "b"}, {"/f": "x"}))
    told = start(Place("do it", "http://127.0.0.1:1", "/app"))
    assert told.argv[-4:] == ["/app", "do it", "agent", "acp"]
    assert told.env == {"A": "b"}
    assert sorted(told.files) == ["/f", told.argv[2]]


def opencode_acp(at: Place) -> Start:
    """OpenCode's server of the protocol. It has no option for the model: its settings name one."""
    told = opencode.start(at)
    files = {path: json.dumps({**json.loads(text), "model": "gateway/ours"}) for path, text in told.files.items()}
    return Start([told.argv[0], "acp"], told.env, files)


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(900)
async def test_linear_work_is_one_row(docker_backend, base_image, hermes, monkeypatch):
    agent = replace(opencode.AGENT, name="opencode-acp", start=over_acp(opencode_acp))
    monkeypatch.setattr("real_agents.FOREIGN", {**naming.FOREIGN, agent.name: agent})
    await check_linear(docker_backend, base_image, agent.name, hermes)
