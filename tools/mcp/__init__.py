"""Tools from MCP servers: `servers` describes them, `session` talks to them, over the streams of `streams`.

`session` and `streams` need the extra `mcp`; `tools_of` loads them for those that have servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager

from sandboxes.base import Sandbox
from sandboxes.naming import lazy_import
from tools.base import Tool
from tools.mcp.servers import MCPServer

_OPEN_TOOLS = lazy_import("tools.mcp.session:open_tools")


@asynccontextmanager
async def tools_of(
    sandbox: Sandbox, servers: Sequence[MCPServer], taken: Collection[str] = ()
) -> AsyncIterator[list[Tool]]:
    """Start servers and yield their tools, until the block ends. taken: names of other tools.

    Raises MCPServerError, SandboxError."""
    if not servers:
        yield []
        return
    async with _OPEN_TOOLS()(sandbox, servers, taken) as tools:
        yield tools
