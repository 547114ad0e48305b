"""MCP servers in the settings of agents that aren't ours."""

import json
from dataclasses import replace

import pytest
import tomlkit
from real_agents import ODD_SERVER
from test_facts import PLACE

from envs.agents import servers
from envs.agents.facts import HOME
from envs.agents.naming import FOREIGN
from envs.agents.servers import run_servers
from envs.types import InfraError
from sandboxes.base import SandboxSpec
from tools.mcp.servers import MCPServer

NUMBERS = MCPServer("the numbers", "stdio", ("python3", "/srv/n.py", "a 'b'"), {"KEY": 'a "b" \\ é'})
SEARCH = MCPServer("search", "streamable-http", url="http://127.0.0.1:8000/mcp", headers={"X": "y"})
OLD = MCPServer("old", "sse", url="http://127.0.0.1:8001/sse")
COMMAND = {"command": "python3", "args": ["/srv/n.py", "a 'b'"], "env": dict(NUMBERS.env)}


def settings(agent, *given):
    """Return an agent's start with servers, and its settings: of the one file that names them."""
    start = FOREIGN[agent].start(replace(PLACE, servers=given))
    (text,) = [text for text in start.files.values() if "the_numbers" in text]
    return start, tomlkit.parse(text).unwrap() if agent == "codex" else json.loads(text)


def test_codex_has_them_in_its_configuration_beside_the_gateway():
    _, config = settings("codex", NUMBERS, SEARCH)
    limits = {"startup_timeout_sec": 60, "tool_timeout_sec": 120}
    search = {"url": SEARCH.url, "http_headers": {"X": "y"}}
    assert config["mcp_servers"] == {"the_numbers": COMMAND | limits, "search": search | limits}
    assert config["model_providers"]["gateway"]["base_url"] == PLACE.v1


def test_claude_code_is_named_a_file_with_them():
    start, config = settings("claude-code", NUMBERS, SEARCH, OLD)
    assert f"--mcp-config={HOME}/mcp.json" in start.argv
    assert config["mcpServers"] == {
        "the_numbers": {"type": "stdio", **COMMAND},
        "search": {"type": "http", "url": SEARCH.url, "headers": {"X": "y"}},
        "old": {"type": "sse", "url": OLD.url, "headers": {}},
    }


@pytest.mark.parametrize("agent", ["gemini-cli", "qwen-code"])
def test_geminis_family_has_them_in_its_settings(agent):
    _, config = settings(agent, NUMBERS, SEARCH, OLD)
    assert config["mcpServers"] == {
        "the_numbers": COMMAND,
        "search": {"httpUrl": SEARCH.url, "headers": {"X": "y"}},
        "old": {"url": OLD.url, "headers": {}},
    }


@pytest.mark.parametrize("agent", ["opencode", "kilo"])
def test_opencodes_family_has_them_in_its_settings(agent):
    _, config = settings(agent, NUMBERS, SEARCH)
    more = {"enabled": True, "timeout": 120_000}
    local = {"type": "local", "command": list(NUMBERS.command), "environment": dict(NUMBERS.env)}
    remote = {"type": "remote", "url": SEARCH.url, "headers": {"X": "y"}, "oauth": False}
    assert config["mcp"] == {"the_numbers": local | more, "search": remote | more}


def test_goose_has_them_among_its_extensions():
    _, config = settings("goose", NUMBERS)
    named = {"name": "the_numbers", "cmd": "python3", "args": COMMAND["args"], "envs": COMMAND["env"]}
    assert config["extensions"] == {"the_numbers": {"enabled": True, "type": "stdio", **named}}


def test_kimi_code_has_them_in_a_file_of_their_own():
    start, config = settings("kimi-code", NUMBERS, SEARCH)
    assert config["mcpServers"] == {"the_numbers": COMMAND, "search": {"url": SEARCH.url, "headers": {"X": "y"}}}
    assert f"{HOME}/kimi/mcp.json" in start.files


@pytest.mark.docker
async def test_a_server_that_listens_in_the_sandbox_is_there_before_the_agent(docker_backend, base_image, monkeypatch):
    monkeypatch.setattr(servers, "_START_S", 2)
    command = ("python3", "/srv/odd_server.py", "good", "8000")
    listening = MCPServer("numbers", "streamable-http", command, url="http://127.0.0.1:8000/mcp", inside=True)
    async with docker_backend.open(SandboxSpec(base_image, workdir="/app")) as sandbox:
        await sandbox.write_file("/srv/odd_server.py", ODD_SERVER.read_text().encode())
        async with run_servers(sandbox, [NUMBERS, listening]), sandbox.connect(8000):
            pass
        with pytest.raises(InfraError, match=r"'numbers' does not listen at .* after 2 s"):
            async with run_servers(sandbox, [replace(listening, command=("false",))]):
                pass
