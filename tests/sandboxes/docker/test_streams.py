"""The two ways to a container's executor."""

import asyncio
import socket
from types import SimpleNamespace

import aiodocker
import pytest

from sandboxes.docker.launch import _Attachable
from sandboxes.docker.streams import AttachedStream, SocketStream


class Messages:
    """What aiodocker's stream gives: the messages, then None."""

    _resp = None

    def __init__(self, *messages):
        self.left = [SimpleNamespace(stream=number, data=data) for number, data in messages]
        self.written = b""

    async def read_out(self):
        return self.left.pop(0) if self.left else None

    async def write_in(self, data):
        self.written += data

    async def close(self):
        self.left = []


async def test_of_an_attached_stream_only_stdout_counts():
    messages = Messages((1, b"a"), (2, b"an error message"), (1, b""), (1, b"b"))
    stream, heard = AttachedStream(messages), []
    await stream.pass_on(heard.append)
    assert heard == [b"a", b"b"]
    await stream.write(b"c")
    assert messages.written == b"c"


class Deaf(asyncio.Protocol):
    """Takes an upgrade, and then reads no more, as does an executor that is stopped."""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
        self.transport.pause_reading()


async def test_an_attached_stream_that_nobody_reads_is_closed_at_once(tmp_path):
    deaf, path = Deaf(), str(tmp_path / "socket")
    async with (
        await asyncio.get_running_loop().create_unix_server(lambda: deaf, path),
        aiodocker.Docker(f"unix://{path}", api_version="v1.41") as client,
    ):
        attached = _Attachable(client, id="x").attach(stdin=True, stdout=True, stderr=True)
        await attached._init()
        transport = attached._resp.connection.transport
        own = transport.get_extra_info("socket")
        transport.write(b"x" * 20_000_000)
        assert transport.get_write_buffer_size() > 0
        await AttachedStream(attached).close()
        await asyncio.sleep(0.1)
        assert own.fileno() == -1, "its socket is still open"
        deaf.transport.abort()


@pytest.fixture
async def served(tmp_path):
    """A socket that greets, then gives back what it is sent; closed when it hears "end"."""

    async def serve(reader, writer):
        writer.write(b"hello")
        while (data := await reader.read(1 << 16)) and data != b"end":
            writer.write(data)
        writer.close()

    async with await asyncio.start_unix_server(serve, tmp_path / "socket"):
        yield tmp_path / "socket"


async def test_a_socket_passes_on_what_comes(served):
    stream = await SocketStream.open(str(served))
    assert await stream.read() == b"hello"
    heard = bytearray()
    reading = asyncio.create_task(stream.pass_on(heard.extend))
    await stream.write(b"x" * 500_000)
    async with asyncio.timeout(120):
        while len(heard) < 500_000:  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0.01)
    await stream.write(b"end")
    async with asyncio.timeout(120):
        await reading
    with pytest.raises(ConnectionResetError):
        await stream.write(b"more")
    await stream.close()


async def test_what_came_early_is_passed_on_first(served):
    stream = await SocketStream.open(str(served))
    await asyncio.sleep(0.1)
    heard = bytearray()
    reading = asyncio.create_task(stream.pass_on(heard.extend))
    await asyncio.sleep(0)
    assert heard == b"hello"
    await stream.close()
    await reading


def test_a_socket_works_on_the_event_loop_of_a_ray_worker():
    uvloop = pytest.importorskip("uvloop")

    async def talk():
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        stream = await SocketStream.over(ours)
        theirs.sendall(b"hello")
        assert await stream.read() == b"hello"
        await stream.write(b"hello yourself")
        assert await asyncio.to_thread(theirs.recv, 100) == b"hello yourself"
        await stream.close()
        theirs.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(talk())
