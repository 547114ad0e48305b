"""Connections into a sandbox, without one."""

import asyncio
import struct

import pytest

from sandboxes.base import SandboxDied
from sandboxes.docker.executor.ports import streams_to
from sandboxes.docker.executor.tunnel import Tunnels


async def nobody(*_):
    raise AssertionError("nothing connects from inside")


class Connection:
    """answers: what each attempt to connect gets, the number of an error, or None for no answer."""

    def __init__(self, *answers):
        self.tunnels = Tunnels(nobody)
        self.answers = list(answers)
        self.sent = []

    async def open_tunnel(self, payload, serve):
        return await self.tunnels.open(payload, self.send, serve)

    async def send(self, number, kind, payload):
        self.sent.append((kind, payload))
        if kind == b"J" and (answer := self.answers.pop(0)) is not None:
            self.says(number, b"F", struct.pack("<I", answer))
        if kind == b"D":
            self.says(number, b"G", struct.pack("<I", len(payload)))
            self.says(number, b"O", payload.upper())
        if kind == b"Z":
            self.says(number, b"Z", b"")

    def says(self, number, kind, payload):
        self.tunnels.receive(number, kind, payload, self.send)


async def test_what_is_written_and_answered_goes_through():
    connection = Connection(0)
    async with streams_to(connection, b"to", "port 1", 5) as (reader, writer):
        writer.write(b"hello")
        writer.write_eof()
        with pytest.raises(RuntimeError, match="write_eof"):
            writer.write(b"more")
        assert await reader.read() == b"HELLO"
    await asyncio.sleep(0.01)
    sent = [frame for frame in connection.sent if frame[0] != b"G"]
    assert sent == [(b"J", b"to"), (b"D", b"hello"), (b"Z", b""), (b"K", b"")]


async def test_a_full_queue_is_tried_again():
    connection = Connection(11, 11, 0)
    async with streams_to(connection, b"to", "port 1", 5):
        assert connection.sent == [(b"J", b"to")] * 3


@pytest.mark.parametrize(("number", "error"), [(111, ConnectionRefusedError), (2, FileNotFoundError), (36, OSError)])
async def test_who_is_not_there_is_named(number, error):
    with pytest.raises(error, match="port 1"):
        async with streams_to(Connection(number), b"to", "port 1", 5):
            pass


async def test_who_does_not_answer_is_named_when_the_time_is_up():
    connection = Connection(None)
    with pytest.raises(TimeoutError, match=r"port 1 within 0\.1 s"):
        async with streams_to(connection, b"to", "port 1", 0.1):
            pass
    assert connection.sent[-1] == (b"K", b"")


async def test_a_sandbox_that_ends_meanwhile_is_no_server_that_refuses():
    connection = Connection(None)

    async def connect():
        async with streams_to(connection, b"to", "port 1", 5):
            pass

    connecting = asyncio.create_task(connect())
    await asyncio.sleep(0.01)
    connection.tunnels.end(SandboxDied("it was stopped"))
    with pytest.raises(SandboxDied):
        await connecting


async def test_a_block_that_fails_drops_what_was_not_sent():
    connection = Connection(0)
    with pytest.raises(ZeroDivisionError):
        async with streams_to(connection, b"to", "port 1", 5) as (_, writer):
            writer.write(b"x")
            raise ZeroDivisionError
    await asyncio.sleep(0.01)
    assert connection.sent == [(b"J", b"to"), (b"K", b"")]
