"""The Docker daemon's attached stream."""

import asyncio
from types import SimpleNamespace

import aiodocker
import aiohttp
import pytest

from sandboxes.docker.daemon.starter import _Attachable
from sandboxes.docker.daemon.stream import AttachedStream


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
    stream, received = AttachedStream(messages), []
    await stream.forward_to(received.append)
    assert received == [b"a", b"b"]
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


@pytest.mark.parametrize(
    "error", [aiohttp.ClientPayloadError("cut"), aiodocker.DockerError(500, {"message": "no"}), RuntimeError("closed")]
)
async def test_an_attached_stream_that_breaks_raises_an_OSError(error):
    class Broken(Messages):
        async def read_out(self):
            raise error

        async def write_in(self, data):
            raise error

    with pytest.raises(OSError):
        await AttachedStream(Broken()).read()
    with pytest.raises(OSError):
        await AttachedStream(Broken()).write(b"x")
