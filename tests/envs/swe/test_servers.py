"""The MCP servers that agents of others can use."""

from dataclasses import replace

import pytest

from envs.agents.naming import FOREIGN
from envs.swe.servers import check_agent
from envs.types import BadTask, Task
from sandboxes.base import Limits
from tools.mcp.servers import MCPServer

TASK = Task("sum", "Add.")
OLD = MCPServer("old", "sse", ("serve",), url="http://127.0.0.1:1/sse", inside=True, of_task=True)
FAR = MCPServer("far", "streamable-http", url="http://far/mcp")


@pytest.mark.parametrize(
    ("agent", "server", "why"),
    [
        ("pi", OLD, "the MCP server 'old': --env.agent pi can't be given any; it speaks sse"),
        ("codex", OLD, "--env.agent codex takes those by stdio, streamable-http alone; it speaks sse"),
        ("codex", FAR, "--env.agent codex asks http://far/mcp from its sandbox, which has no network"),
    ],
)
def test_one_that_an_agent_has_no_use_for_is_refused(agent, server, why):
    with pytest.raises(BadTask, match=why):
        check_agent(FOREIGN[agent], [server], [TASK])


def test_one_elsewhere_is_reached_by_the_network_of_the_task():
    check_agent(FOREIGN["codex"], [FAR], [replace(TASK, limits=Limits(network=True))])
    check_agent(FOREIGN["opencode"], [], [replace(TASK, mcp_servers=[OLD])])
