"""The end of a server, by how its program ended."""

import asyncio

import pytest

from tools.base import ToolError
from tools.mcp.servers import CallInterruptedError, MCPServer, MCPServerError

pytest.importorskip("mcp", reason="the extra mcp is not installed")

from tools.mcp.streams import Watch, _open_socket


@pytest.mark.parametrize(
    ("exit_code", "kind", "expected"),
    [
        (137, CallInterruptedError, "was ended by signal 9"),
        (1, MCPServerError, "ended by itself with status 1: no database"),
        (127, MCPServerError, "ended by itself with status 127"),
        (None, MCPServerError, "closed its output"),
    ],
)
def test_a_signal_may_be_the_models_doing_and_every_other_end_is_the_servers(exit_code, kind, expected):
    watch = Watch(MCPServer("notes", "stdio", ("notes",)))
    watch.error_text = "no database\n"
    error = watch.explain_exit(exit_code)
    assert type(error) is kind and expected in str(error)
    assert isinstance(error, ToolError) == (kind is CallInterruptedError)


def test_the_first_end_counts():
    watch = Watch(MCPServer("notes", "stdio", ("notes",)))
    with pytest.raises(CallInterruptedError, match="more than 4 MB"):
        watch.count(5 << 20)
    watch.end(ValueError("first"))
    watch.end(ValueError("second"))
    assert str(watch.ended) == "first"


async def test_a_connection_that_its_client_keeps_is_over_with_the_way_to_the_server(local_sandbox, unused_tcp_port):
    async def keep(reader, writer):
        await reader.read()
        writer.close()

    server = MCPServer("notes", "sse", ("notes",), url=f"http://127.0.0.1:{unused_tcp_port}", inside=True)
    async with await asyncio.start_server(keep, "127.0.0.1", unused_tcp_port):
        before = asyncio.all_tasks()
        async with _open_socket(local_sandbox, Watch(server)) as path:
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(b"GET")
            await asyncio.sleep(0.2)
            assert len(asyncio.all_tasks() - before) > 2, "it is carried to and fro"
        left = {task for task in asyncio.all_tasks() - before if "keep" not in repr(task)}
        assert left == set()
        assert await reader.read() == b""
        writer.close()
