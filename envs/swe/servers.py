"""The MCP servers of a run, and those of its tasks that can't be used."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from envs.agents.facts import ForeignAgent
from envs.agents.naming import find_agent
from envs.running.mix import Mix
from envs.swe.config import SWEEnvConfig
from envs.types import BadTask, Task
from tools.mcp.servers import MCPServer, check_installed, read_servers


def servers_of(config: SWEEnvConfig) -> tuple[MCPServer, ...]:
    """Return the servers of a run. Raises ValueError."""
    return () if config.mcp_servers is None else read_servers(config.mcp_servers, os.environ)


def check_servers(config: SWEEnvConfig, tasks: Iterable[Task]) -> None:
    """Raise BadTask if there are MCP servers that nothing here can use."""
    tasks = list(tasks)
    try:
        own = servers_of(config)
        check_installed(len(own) + sum(len(task.mcp_servers) for task in tasks))
        agents = [find_agent(one) for one in Mix.of(config.agent).names]
    except ValueError as error:
        raise BadTask(str(error)) from None
    for agent in agents:
        if isinstance(agent, ForeignAgent):
            check_agent(agent, own, tasks)


def check_agent(agent: ForeignAgent, own: Sequence[MCPServer], tasks: Iterable[Task]) -> None:
    """Raise BadTask if an agent of others can't use a run's own servers, or a task's."""
    for task in tasks:
        for server in (*own, *task.mcp_servers):
            where = f"task {task.id}: the MCP server {server.name!r}"
            if server.transport not in agent.mcp:
                takes = f"takes those by {', '.join(agent.mcp)} alone" if agent.mcp else "can't be given any"
                raise BadTask(f"{where}: --env.agent {agent.name} {takes}; it speaks {server.transport}")
            if server.url and not server.inside and not (task.limits.network or task.limits.allowed_hosts):
                what = f"--env.agent {agent.name} asks {server.url} from its sandbox, which has no network"
                raise BadTask(f"{where}: {what}; give the server a `command`, or the task a network")
