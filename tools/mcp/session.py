"""Tools of MCP servers in a rollout: each server is started, its tools are listed, and their calls are bounded.

A call that comes to no end, or a server ended by a signal, may be the model's doing: it gets the error, and the server
is started again. Everything else that isn't an answer is an `MCPServerError`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import anyio
from mcp import types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from sandboxes.base import Sandbox, SandboxError
from sandboxes.shielding import stop
from tools.base import MalformedCall, Tool, ToolError, ToolResult
from tools.mcp.servers import CallInterruptedError, MCPServer, MCPServerError
from tools.mcp.streams import Watch, messages_of
from tools.output import replace_unreadable, truncate

_MOST_TOOLS = 128
_MOST_SCHEMAS = 200_000
"""Characters of all descriptions and schemas of a server: they stand in each prompt."""
_MOST_DEPTH = 32
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ENDING_S = 10.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of servers. start_s: until a server has listed its tools. call_s: of one call. shown: characters of
    an answer shown to the model."""

    start_s: float = 60.0
    call_s: float = 120.0
    shown: int = 8_000


@asynccontextmanager
async def open_tools(
    sandbox: Sandbox, servers: Sequence[MCPServer], taken: Collection[str] = (), bounds: Bounds | None = None
) -> AsyncIterator[list[Tool]]:
    """Start the servers and yield their tools, until the block ends. taken: names of the rollout's other tools.

    A name that is there twice gets its server's before it. Raises MCPServerError, SandboxError."""
    async with AsyncExitStack() as stack:
        opened = [_Server(sandbox, server, bounds or Bounds()) for server in servers]
        for one in opened:
            await stack.enter_async_context(one)
        tools = [(one.server, tool) for one in opened for tool in one.tools]
        count = Counter([*taken, *(tool.name for _, tool in tools)])
        yield [tool if count[tool.name] == 1 else _add_prefix(server, tool) for server, tool in tools]


def _add_prefix(server: MCPServer, tool: Tool) -> Tool:
    return replace(tool, name=f"{re.sub(r'[^A-Za-z0-9_-]', '_', server.name)}__{tool.name}")


class _Server:
    """A server during a rollout, with one connection after another. tools: those of the first."""

    tools: Sequence[Tool] = ()

    def __init__(self, sandbox: Sandbox, server: MCPServer, bounds: Bounds) -> None:
        self.server = server
        self._sandbox = sandbox
        self._bounds = bounds
        self._connection: _Connection | None = None
        self._known_tools: Sequence[types.Tool] = ()
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> _Server:
        listed = (await self._connect()).listed
        self.tools = [self._make_tool(one) for one in listed]
        if len({tool.name for tool in self.tools}) < len(self.tools):
            await self._end()
            raise MCPServerError(self.server, "lists two tools of one name", hopeless=True)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._end()

    def _make_tool(self, one: types.Tool) -> Tool:
        parameters = {"properties": {}, "required": [], **one.input_schema}
        return Tool(one.name, one.description or "", parameters, partial(self._call, one.name), None)

    async def _call(self, tool: str, /, **arguments: Any) -> ToolResult:
        """Call a tool. Raises ToolError (mistakes of the model), CallInterruptedError, MCPServerError, SandboxError."""
        async with self._turn:
            connection = await self._connect()
            try:
                answer = await connection.call(tool, arguments, self._bounds.call_s)
            except (CallInterruptedError, MCPServerError):
                await self._end()
                raise
        said = "\n".join(map(_format_content, answer.content))
        if not answer.content and answer.structured_content is not None:
            said = json.dumps(answer.structured_content, ensure_ascii=False)
        text = truncate(replace_unreadable(said), self._bounds.shown)
        error = bool(answer.is_error)
        return ToolResult(
            f"Error: {text}" if error else text, is_error=error, metadata={"mcp_server": self.server.name}
        )

    async def _connect(self) -> _Connection:
        """Return the connection to the server, or start it again. Raises MCPServerError, SandboxError."""
        if self._connection is not None:
            return self._connection
        connection = _Connection(self._sandbox, self.server)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(connection.end)
            try:
                async with asyncio.timeout(self._bounds.start_s):
                    await connection.begin()
            except TimeoutError:
                what = f"did not start and list its tools within {self._bounds.start_s:.0f} s"
                raise MCPServerError(self.server, what) from connection.watch.ended
            except CallInterruptedError as cut:
                raise MCPServerError(self.server, f"did not start: {cut}") from cut
            if gone := self._find_missing(connection.listed):
                what = f"was started again and has other tools now: no more {', '.join(gone)}"
                raise MCPServerError(self.server, what)
            stack.pop_all()
        self._connection = connection
        return connection

    def _find_missing(self, listed: Sequence[types.Tool]) -> list[str]:
        """Return the tools in the model's prompt that the restarted server lacks, or describes otherwise."""
        now = [(one.name, one.input_schema) for one in listed]
        gone = [one.name for one in self._known_tools if (one.name, one.input_schema) not in now]
        self._known_tools = self._known_tools or listed
        return gone

    async def _end(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.end()


class _Connection:
    """One start of a server and its session, in one task: the library's blocks end where they began."""

    listed: Sequence[types.Tool] = ()

    def __init__(self, sandbox: Sandbox, server: MCPServer) -> None:
        self.watch = Watch(server)
        self._server = server
        self._sandbox = sandbox
        self._closing = asyncio.Event()
        self._session: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(), name="MCP server")

    async def begin(self) -> None:
        """Wait for the start, and list the tools. Raises MCPServerError, CallInterruptedError, SandboxError."""
        await asyncio.wait({self._session, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if not self._session.done():
            raise self.watch.ended or MCPServerError(self._server, "did not start")
        await self._send(self._session.result().initialize())
        self.listed = await self._list_tools()

    async def call(self, tool: str, arguments: Mapping[str, Any], seconds: float) -> types.CallToolResult:
        """Call a tool. Raises ToolError, CallInterruptedError, MCPServerError, SandboxError."""
        params = types.CallToolRequestParams(name=tool, arguments=dict(arguments))
        try:
            params.model_dump_json()
        except (ValueError, RecursionError):
            problem = "half of a surrogate pair, which is no text, or too deep nesting"
            raise MalformedCall(f"wrong arguments for {tool}: {problem}") from None
        # Not `call_tool`, which checks answers against schemas whose patterns may take for ever.
        request = self._session.result().send_request(types.CallToolRequest(params=params), types.CallToolResult)
        try:
            async with asyncio.timeout(seconds):
                answer: types.CallToolResult = await self._send(request)
        except TimeoutError:
            raise CallInterruptedError(self._server, f"did not answer {tool} within {seconds:.0f} s") from None
        except MCPError as error:  # an answer
            kind = MalformedCall if error.code == types.INVALID_PARAMS else ToolError
            raise kind(truncate(replace_unreadable(error.message), 2000)) from None
        return answer

    async def end(self) -> None:
        """End it; its program is killed."""
        self._closing.set()
        await asyncio.wait({self._task}, timeout=_ENDING_S)
        await stop({self._task})

    async def _run(self) -> None:
        try:
            async with (
                messages_of(self._sandbox, self.watch) as (incoming, outgoing),
                ClientSession(incoming, outgoing) as session,
            ):
                self._session.set_result(session)
                await self._closing.wait()
        except (SandboxError, MCPServerError, CallInterruptedError) as error:
            self.watch.end(error)
        except Exception as error:  # of the library's tasks, in groups: all mean that nothing more comes
            self.watch.end(MCPServerError(self._server, f"broke off: {error!r}"))

    async def _list_tools(self) -> list[types.Tool]:
        found: list[types.Tool] = []
        cursor: str | None = None
        while cursor is not None or not found:
            params = types.PaginatedRequestParams(cursor=cursor)
            session, request = self._session.result(), types.ListToolsRequest(params=params)
            page: types.ListToolsResult = await self._send(session.send_request(request, types.ListToolsResult))
            found += page.tools
            cursor = page.next_cursor
            if len(found) > _MOST_TOOLS or not page.tools:
                break
        if (problem := _find_problem(found)) is not None:
            raise MCPServerError(self._server, problem, hopeless=True)
        return found

    async def _send(self, request: Any) -> Any:
        """Return an answer, unless what ended the server comes first. Raises MCPError for an answer with an error."""
        self.watch.received = 0
        if self.watch.ended is not None:
            request.close()
            raise self.watch.ended
        try:
            return await request
        except MCPError as error:
            if self.watch.ended is not None:
                raise self.watch.ended from error
            if not self.listed:
                what = f"answered with an error before it listed its tools: {error}"
                raise MCPServerError(self._server, what, hopeless=True) from error
            raise
        except (ValidationError, RuntimeError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            what = f"broke the protocol: {' '.join(str(error).splitlines()[:3])}"
            raise self.watch.ended or MCPServerError(self._server, what, hopeless=not self.listed) from error


def _find_problem(tools: Sequence[types.Tool]) -> str | None:
    """Return what makes a list of tools unusable."""
    if not tools:
        return "lists no tools"
    if len(tools) > _MOST_TOOLS:
        return f"lists more than {_MOST_TOOLS} tools"
    for tool in tools:
        if not _NAME.fullmatch(tool.name):
            return f"names a tool {tool.name[:80]!r}: a name has up to 64 letters, digits, _, - and ."
        if _is_too_deep(tool.input_schema):
            return f"describes the arguments of {tool.name} in more than {_MOST_DEPTH} levels"
    size = sum(len(tool.description or "") + len(json.dumps(tool.input_schema)) for tool in tools)
    return f"describes its tools in {size:,} characters" if size > _MOST_SCHEMAS else None


def _is_too_deep(schema: object) -> bool:
    level = [schema]
    for _ in range(_MOST_DEPTH):
        values = [one.values() if isinstance(one, Mapping) else one if isinstance(one, list) else () for one in level]
        level = [value for some in values for value in some]
    return bool(level)


def _format_content(content: types.ContentBlock) -> str:
    """Return a part of an answer as text."""
    match content:
        case types.TextContent(text=text):
            return str(text)
        case types.EmbeddedResource(resource=types.TextResourceContents(text=text)):
            return str(text)
        case types.ResourceLink(uri=uri):
            return f"[a resource: {uri}]"
        case _:
            return f"[{content.type}: it can't be shown]"
