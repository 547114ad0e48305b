"""The MCP servers of a run, and those of its tasks that can't be used."""

from __future__ import annotations

import os
from collections.abc import Iterable

from envs.agents.facts import ForeignAgent
from envs.agents.naming import find_agent
from envs.base import AGENTS
from envs.running.mix import Mix
from envs.swe.config import SWEEnvConfig
from envs.types import BadTask, Task
from tools.mcp.servers import MCPServer, check_installed, read_servers


def servers_of(config: SWEEnvConfig) -> tuple[MCPServer, ...]:
    """Return the servers of a run. Raises ValueError."""
    return () if config.mcp_servers is None else read_servers(config.mcp_servers, os.environ)


def check_servers(config: SWEEnvConfig, tasks: Iterable[Task]) -> None:
    """Raise BadTask if there are MCP servers that nothing here can use."""
    served = [task.id for task in tasks if task.mcp_servers]
    try:
        count = len(servers_of(config)) + len(served)
        check_installed(count)
        foreign = [one for one in Mix.of(config.agent).names if isinstance(find_agent(one, AGENTS), ForeignAgent)]
    except ValueError as error:
        raise BadTask(str(error)) from None
    if foreign and count:
        of = f"tasks with MCP servers ({served[0]} is one of {len(served)})" if served else "--env.mcp_servers"
        raise BadTask(f"{of}: --env.agent {foreign[0]} can't be given any; use an agent of this package's")
