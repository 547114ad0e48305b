"""MCP servers in a sandbox: the model's mistakes are told to it, and a server's own failures are never its."""

import asyncio
import sys
from pathlib import Path

import pytest
import pytest_asyncio

from tools import ToolCall, ToolRegistry
from tools.mcp.servers import MCPServer, MCPServerError

pytest.importorskip("mcp", reason="the extra mcp is not installed")

from tools.mcp.session import Bounds, open_tools

ODD = Path(__file__).with_name("odd_server.py")
SHORT = Bounds(start_s=10, call_s=2)


def by_stdio(manner, name="odd", **more):
    return MCPServer(name, "stdio", ("python3", "/tmp/odd_server.py", manner), of_task=True, **more)


def by_http(manner, port):
    command = ("python3", "/tmp/odd_server.py", manner, str(port))
    url = f"http://127.0.0.1:{port}/mcp"
    return MCPServer("odd", "streamable-http", command, url=url, inside=True, of_task=True)


@pytest_asyncio.fixture(loop_scope="session")
async def place(docker_sandbox):
    await docker_sandbox.write_file("/tmp/odd_server.py", ODD.read_bytes())
    return docker_sandbox


async def call_server(place, server, calls=1, arguments=None, bounds=SHORT):
    """Return the results of some calls."""
    async with open_tools(place, [server], bounds=bounds) as tools:
        registry = ToolRegistry(tools)
        return [await registry.execute(ToolCall("add", arguments or {"a": 2, "b": 3})) for _ in range(calls)]


pytestmark = pytest.mark.docker


@pytest.mark.parametrize("server", [by_stdio("good"), by_stdio("noise"), by_http("good", 8123)], ids=str)
async def test_a_server_keeps_its_state_from_call_to_call(place, server):
    first, second = await call_server(place, server, 2)
    assert (first.content, second.content, first.is_error) == ("5 (1)", "5 (2)", False)


async def test_the_model_is_shown_the_servers_schema(place):
    async with open_tools(place, [by_stdio("good")]) as (tool,):
        function = tool.schema["function"]
    assert function["name"] == "add" and function["description"] == "Add two numbers."
    assert function["parameters"]["required"] == ["a", "b"]


async def test_names_get_their_servers_only_if_they_clash(place):
    servers = [by_stdio("good", "one"), by_stdio("good", "the other")]
    async with open_tools(place, servers) as tools:
        assert [tool.name for tool in tools] == ["one__add", "the_other__add"]
    async with open_tools(place, servers[:1], taken=["add"]) as tools:
        assert [tool.name for tool in tools] == ["one__add"]


@pytest.mark.parametrize(
    ("manner", "arguments", "expected", "malformed"),
    [
        ("is_error", None, "Error: no such number", False),
        ("good", {"a": "one", "b": 2}, "Error: a is no integer", True),
        ("good", {"a": "\ud800", "b": 2}, "Error: wrong arguments for add: half of a surrogate pair", True),
        ("picture", None, "[image: it can't be shown]", False),
        ("structured", None, '{"sum": 5}', False),
        ("control", None, "a\ufffd[31mb\ufffdc", False),
    ],
)
async def test_what_a_server_answers_is_told_to_the_model(place, manner, arguments, expected, malformed):
    (result,) = await call_server(place, by_stdio(manner), arguments=arguments)
    assert (result.content.partition(", which")[0], result.malformed) == (expected, malformed)


async def test_a_long_answer_is_cut(place):
    (result,) = await call_server(place, by_stdio("large"))
    assert len(result.content) < 9000 and "characters cut" in result.content


@pytest.mark.parametrize("manner", ["hangs_once", "killed"])
async def test_a_server_that_a_call_may_have_stopped_is_started_again_and_the_model_is_told(place, manner):
    first, second = await call_server(place, by_stdio(manner), 2)
    assert first.is_error and "started again" in first.content
    assert second.content == "5 (1)"


async def test_a_server_with_other_tools_after_a_restart_is_no_mistake_of_the_models(place):
    with pytest.raises(MCPServerError, match="'odd' was started again and has other tools now: no more add") as caught:
        await call_server(place, by_stdio("renames"), 2)
    assert not caught.value.hopeless


@pytest.mark.parametrize("server", [by_stdio("huge"), by_stdio("floods"), by_http("huge", 8124)], ids=str)
async def test_a_flood_ends_a_call_and_not_the_rollout(place, server):
    bounds = Bounds(start_s=10, call_s=60)
    first, second = await call_server(place, server, 2, bounds=bounds)
    assert all("said more than 4 MB" in result.content for result in (first, second))


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (by_stdio("exits"), "ended by itself with status 3: out of ideas"),
        (by_stdio("wrong_result"), "broke the protocol"),
        (by_http("status", 8126), "HTTP status 500"),
    ],
    ids=str,
)
async def test_a_server_that_fails_in_the_middle_is_no_mistake_of_the_models(place, server, why):
    with pytest.raises(MCPServerError, match=why):
        await call_server(place, server)


@pytest.mark.parametrize(
    ("manner", "why", "hopeless"),
    [
        ("silent", "did not start and list its tools within 2 s", False),
        ("silent_list", "did not start and list its tools within 2 s", False),
        ("garbage", "list its tools within 2 s", False),
        ("dies_at_once", "no such database", False),
        ("refuses", "no licence", True),
        ("old", "1999-01-01", True),
        ("no_tools", "lists no tools", True),
        ("many_tools", "more than 128 tools", True),
        ("endless_list", "more than 128 tools", True),
        ("twice", "two tools of one name", True),
        ("bad_name", "names a tool", True),
        ("no_object", "tools.0.inputSchema.type", True),
        ("bad_properties", "tools.0.inputSchema.properties", True),
        ("bad_property", "tools.0.inputSchema.properties", True),
        ("bad_required", "tools.0.inputSchema.required", True),
        ("deep", "more than 32 levels", True),
        ("long", "1,000,", True),
    ],
)
async def test_a_server_that_can_not_be_used_fails_at_the_start(place, manner, why, hopeless):
    with pytest.raises(MCPServerError, match=why) as caught:
        await call_server(place, by_stdio(manner), bounds=Bounds(start_s=2 if "2 s" in why else 20))
    assert caught.value.hopeless == hopeless


async def test_a_missing_program_is_hopeless(place):
    with pytest.raises(MCPServerError, match="status 127") as caught:
        await call_server(place, MCPServer("gone", "stdio", ("no-such-server",), of_task=True))
    assert caught.value.hopeless


async def test_nothing_of_a_server_is_left_behind(place):
    await call_server(place, by_stdio("good"))
    found = await place.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[o]dd_server'")
    assert found.output.strip() == "0"


async def test_a_cancelled_call_leaves_the_server_at_work(place):
    async with open_tools(place, [by_stdio("hangs")]) as (tool,):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await tool({"a": 1, "b": 2})


@pytest.mark.parametrize("transport", ["stdio", "sse", "streamable-http"])
async def test_a_server_made_with_the_package_itself_is_understood(local_sandbox, tmp_path, transport, unused_tcp_port):
    program = tmp_path / "server.py"
    program.write_text(
        "from mcp.server.mcpserver import MCPServer\n"
        "server = MCPServer('weather')\n"
        "@server.tool()\n"
        "def forecast(city: str, days: int = 1) -> str:\n"
        "    'Forecast the weather.'\n"
        "    return f'{days} days of rain in {city}'\n"
        f"server.run({transport!r}{'' if transport == 'stdio' else f', port={unused_tcp_port}'})\n"
    )
    path = {"stdio": "", "sse": "/sse", "streamable-http": "/mcp"}[transport]
    url = f"http://127.0.0.1:{unused_tcp_port}{path}" if path else ""
    server = MCPServer("weather", transport, (sys.executable, str(program)), url=url, inside=bool(url))
    async with open_tools(local_sandbox, [server]) as tools:
        registry = ToolRegistry(tools)
        good = await registry.execute(ToolCall("forecast", {"city": "Oslo", "days": 3}))
        bad = await registry.execute(ToolCall("forecast", {"town": "Oslo"}))
    assert good.content == "3 days of rain in Oslo"
    assert bad.is_error and "city" in bad.content
