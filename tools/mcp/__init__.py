"""Tools from MCP servers: `servers` describes them, `session` talks to them, over the streams of `streams`.

`session` and `streams` need the extra `mcp`; `tools_of` loads them for those that have servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager

from sandboxes.base import Sandbox
from tools.base import Tool
from tools.mcp.servers import MCPServer


@asynccontextmanager
async def tools_of(
    sandbox: Sandbox, servers: Sequence[MCPServer], taken: Collection[str] = ()
) -> AsyncIterator[list[Tool]]:
    """Start servers and yield their tools, until the block ends. taken: names of other tools.

    Raises BrokenServer, SandboxError."""
    if not servers:
        yield []
        return
    from tools.mcp.session import open_tools

    async with open_tools(sandbox, servers, taken) as tools:
        yield tools
