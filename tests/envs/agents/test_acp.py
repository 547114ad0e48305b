"""Agents that are given their task over the Agent Client Protocol."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from real_agents import check_linear

from envs.agents import acp_client, naming, opencode
from envs.agents.acp import over_acp
from envs.agents.facts import Place, Start

SERVER = """
import json, sys
def say(**message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def read(): return json.loads(sys.stdin.readline())
def answer(asked, **result): say(id=asked["id"], result=result)
print("a word of its own", flush=True)
asked = read(); assert asked["params"]["protocolVersion"] == 1
answer(asked, protocolVersion=1, authMethods=[{"id": "key", "name": "a key"}])
asked = read(); say(id=asked["id"], error={"code": -32000, "message": "authenticate first"})
asked = read(); assert asked["params"] == {"methodId": "key"}; answer(asked)
asked = read(); assert asked["params"]["cwd"] == "/here"; answer(asked, sessionId="s")
asked = read(); assert asked["params"]["prompt"] == [{"type": "text", "text": "do 'it'"}]
say(method="session/update", params={"sessionId": "s", "update": {}})
kinds = [{"optionId": kind, "name": kind, "kind": kind} for kind in ("reject_once", "allow_always", "allow_once")]
say(id="p", method="session/request_permission", params={"sessionId": "s", "toolCall": {}, "options": kinds})
allowed = read(); assert allowed["result"] == {"outcome": {"outcome": "selected", "optionId": "allow_once"}}, allowed
say(id="r", method="fs/read_text_file", params={"path": "/etc/passwd"})
assert read()["error"]["code"] == -32601
%s
assert not sys.stdin.readline()
"""


def worked(end):
    argv = [sys.executable, "-I", acp_client.__file__, "/here", "do 'it'", sys.executable, "-c", SERVER % end]
    return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)


def test_a_task_is_given_allowed_and_ended():
    ran = worked('answer(asked, stopReason="end_turn")')
    assert (ran.returncode, ran.stdout) == (0, "stop reason: end_turn\n"), ran.stderr
    assert "a word of its own" in ran.stderr


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ('say(id=asked["id"], error={"code": 1, "message": "no model"})', "session/prompt is an error: {'code': 1"),
        ("sys.exit(3)", "the agent ended with status 3 before it answered session/prompt"),
    ],
)
def test_an_agent_that_fails_is_told(end, why):
    ran = worked(end)
    assert ran.returncode == 1
    assert why in ran.stderr


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
