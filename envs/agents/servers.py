"""MCP servers for foreign agents: as their settings name them, and those that have to listen before they begin."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import tomlkit

from envs.types import Failure, InfraError
from sandboxes.base import Sandbox
from tools.mcp.servers import MCPServer

_START_S = 60
"""How long a server may take to start, in seconds."""
_CALL_S = 120
_POLL_S = 0.1
_QUIETLY = ["/bin/sh", "-c", 'exec "$@" >/dev/null 2>&1', "sh"]
_TYPES = {"stdio": "stdio", "sse": "sse", "streamable-http": "http"}


def mcp_entries(servers: Sequence[MCPServer], url: str = "", headers: str = "headers") -> dict[str, dict[str, Any]]:
    """Return servers by name as most agents' `mcpServers` have them.

    url: the key for the address of one by streamable HTTP, if the key alone says so; else "", and each has a `type`.
    headers: the key for these."""
    return {_server_name(server): _entry(server, url, headers) for server in servers}


def codex_settings(servers: Sequence[MCPServer]) -> str:
    """Return servers as Codex' settings have them."""
    limits = {"startup_timeout_sec": _START_S, "tool_timeout_sec": _CALL_S}
    named = {name: {**entry, **limits} for name, entry in mcp_entries(servers, "url", "http_headers").items()}
    return tomlkit.dumps({"mcp_servers": named}) if named else ""


def opencode_entries(servers: Sequence[MCPServer]) -> dict[str, dict[str, Any]]:
    """Return servers by name as OpenCode's settings have them."""
    found: dict[str, dict[str, Any]] = {}
    for server in servers:
        kind: dict[str, Any] = {"type": "remote", "url": server.url, "headers": dict(server.headers), "oauth": False}
        if server.transport == "stdio":
            kind = {"type": "local", "command": list(server.command), "environment": dict(server.env)}
        found[_server_name(server)] = {**kind, "enabled": True, "timeout": _CALL_S * 1000}
    return found


@asynccontextmanager
async def run_servers(sandbox: Sandbox, servers: Sequence[MCPServer]) -> AsyncIterator[None]:
    """Start the servers that listen in the sandbox, until the block ends; those by stdio are the agent's to start.

    Raises InfraError if one does not listen, SandboxError."""
    async with AsyncExitStack() as stack:
        for server in servers:
            if server.inside:
                await stack.enter_async_context(sandbox.start([*_QUIETLY, *server.command], env=server.env))
                await _wait_until_listening(sandbox, server)
        yield


async def _wait_until_listening(sandbox: Sandbox, server: MCPServer) -> None:
    deadline = asyncio.get_running_loop().time() + _START_S
    while asyncio.get_running_loop().time() < deadline:
        try:
            async with sandbox.connect(server.port):
                return
        except (ConnectionRefusedError, TimeoutError):
            await asyncio.sleep(_POLL_S)
    kind = Failure.TASK if server.of_task else Failure.SANDBOX
    raise InfraError(kind, f"the MCP server {server.name!r} does not listen at {server.url} after {_START_S} s")


def _entry(server: MCPServer, url: str, headers: str) -> dict[str, Any]:
    kind = {} if url else {"type": _TYPES[server.transport]}
    if server.transport == "stdio":
        return {**kind, "command": server.command[0], "args": list(server.command[1:]), "env": dict(server.env)}
    address = url if url and server.transport == "streamable-http" else "url"
    return {**kind, address: server.url, headers: dict(server.headers)}


def _server_name(server: MCPServer) -> str:
    """Return a name that every agent takes, and models too."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", server.name)
