"""What comes through the sandbox's door."""

import asyncio
import json

import pytest
from stopwatch import Stopwatch

from envs.judging.reports import receiver
from envs.judging.reports.receiver import Receiver


@pytest.fixture
async def door():
    """A watch, and a function that opens a connection to it."""
    one = Receiver()
    server = await asyncio.get_running_loop().create_server(one.door, "127.0.0.1", 0)
    writers = []

    async def connect():
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writers.append(writer)
        return reader, writer

    yield one, connect
    for writer in writers:
        writer.close()
    server.close()


def line(**message):
    return json.dumps(message).encode() + b"\n"


async def test_each_connection_is_a_call_and_a_finish_is_answered(door):
    one, connect = door
    for number in range(2):
        reader, writer = await connect()
        writer.write(line(kind="start", id=str(number)) + line(kind="finish", status=0))
        assert await reader.readline() == b"\n"
    assert [[message["kind"] for message in call] for call in await one.calls()] == [["start", "finish"]] * 2


async def test_what_a_process_that_has_ended_sent_is_waited_for(door):
    one, connect = door
    _, writer = await connect()
    writer.write(line(kind="start", id="a"))
    waiting = asyncio.create_task(one.calls())
    await asyncio.sleep(0.1)
    writer.write(line(kind="test", id="a", outcome="passed"))
    writer.close()
    assert [len(call) for call in await waiting] == [2]


async def test_a_process_that_runs_on_is_not_waited_for_long(door, monkeypatch):
    monkeypatch.setattr(receiver, "_SETTLE_S", 0.05)
    one, connect = door
    _, writer = await connect()
    writer.write(line(kind="start", id="a"))
    await asyncio.sleep(0.05)
    assert [len(call) for call in await one.calls()] == [1]


@pytest.mark.parametrize("sent", [b"no json\n", b"[1]\n", b"3\n", b"\xff\n", b"[" * 100_000 + b"\n", b'{"a": [{}]}\n'])
async def test_what_is_no_message_is_passed_over(door, sent):
    one, connect = door
    reader, writer = await connect()
    writer.write(sent + line(kind="finish", status=0))
    assert await reader.readline() == b"\n"
    assert [list(call) for call in await one.calls()] == [[{"kind": "finish", "status": 0}]]


@pytest.mark.parametrize(("limit", "value"), [("MAX_BYTES", 1000), ("_MAX_LINE", 1000), ("MAX_CALLS", 0)])
async def test_more_than_is_taken_is_not_known(door, monkeypatch, limit, value):
    monkeypatch.setattr(receiver, limit, value)
    one, connect = door
    reader, writer = await connect()
    writer.write(b"x" * 5000)
    if limit == "MAX_CALLS":
        writer.write(b"\n" + line(kind="finish", status=0))
    assert await reader.read(1) in (b"", b"\n")
    assert await one.calls() == []


def test_a_line_in_many_pieces_is_read_in_linear_time():
    call, watch = Receiver().door(), Stopwatch()
    call.data_received(b"x" * 2**19)
    for _ in range(20_000):
        call.data_received(b"x")
    assert watch.seconds < 2.0


async def test_small_messages_are_not_taken_without_end(door, monkeypatch):
    monkeypatch.setattr(receiver, "MAX_MESSAGES", 3)
    one, connect = door
    reader, writer = await connect()
    writer.write(line(kind="start", id="a"))
    await asyncio.sleep(0.05)
    writer.write(b"{}\n" * 3)
    assert await reader.read() == b""
    assert [len(call) for call in await one.calls()] == [1]
