"""The client of the Agent Client Protocol, with a scripted agent."""

import subprocess
import sys

import pytest

from envs.agents import acp_client

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
