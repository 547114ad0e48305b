"""A socket past the Docker daemon."""

import asyncio
import socket

import pytest

from sandboxes.docker.executor.streams import SocketStream


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
    received = bytearray()
    reading = asyncio.create_task(stream.forward_to(received.extend))
    await stream.write(b"x" * 500_000)
    async with asyncio.timeout(120):
        while len(received) < 500_000:  # noqa: ASYNC110  nobody tells
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
    received = bytearray()
    reading = asyncio.create_task(stream.forward_to(received.extend))
    await asyncio.sleep(0)
    assert received == b"hello"
    await stream.close()
    await reading


def test_a_socket_works_on_the_event_loop_of_a_ray_worker():
    uvloop = pytest.importorskip("uvloop")

    async def talk():
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        stream = await SocketStream.from_socket(ours)
        theirs.sendall(b"hello")
        assert await stream.read() == b"hello"
        await stream.write(b"hello yourself")
        assert await asyncio.to_thread(theirs.recv, 100) == b"hello yourself"
        await stream.close()
        theirs.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(talk())
