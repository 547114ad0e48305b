"""Frames over one stream, and what becomes of requests when it ends."""

import asyncio
import struct

import pytest
from fake_executor import HEADER, FakeExecutor, connected, frame

from sandboxes.base import DaemonRestarted, SandboxDied, SandboxError, SandboxTimeout
from sandboxes.docker.executor.connection import MAX_FRAME


async def test_another_protocol_is_refused():
    with pytest.raises(SandboxError, match=r"speaks protocol 99, this side \d+; rebuild"):
        await connected(FakeExecutor(hello=frame(0, b"H", struct.pack("<I", 99))))


async def test_answers_find_their_requests_in_any_order_and_in_pieces():
    executor = FakeExecutor()
    connection = await connected(executor)
    first, second = connection.call(), connection.call()
    for byte in (
        frame(second.number, b"O", b"data") + frame(second.number, b"X", b"2") + frame(first.number, b"F", b"1")
    ):
        executor.say(bytes([byte]))
    assert await connection.answer(first, 5) == (b"F", b"1")
    assert await connection.answer(second, 5) == (b"X", b"2")
    assert second.data == b"data"
    await connection.close()


async def test_what_was_given_up_is_not_waited_for():
    executor = FakeExecutor()
    connection = await connected(executor)
    given_up, other = connection.call(), connection.call()
    connection.forget(given_up)
    executor.say(frame(given_up.number, b"X", b"late") + frame(other.number, b"F", b"fine"))
    assert await connection.answer(other, 5) == (b"F", b"fine")
    await connection.close()


async def test_no_answer_in_time_is_told():
    connection = await connected(FakeExecutor())
    with pytest.raises(SandboxTimeout, match=r"gave no answer within 0 s"):
        await connection.answer(connection.call(), 0.01)
    await connection.close()


async def test_a_container_that_does_not_run_any_more_is_a_dead_sandbox():
    executor = FakeExecutor()
    connection = await connected(executor, runs=False)
    waiting = connection.call()
    await executor.close()
    with pytest.raises(SandboxDied, match="does not run any more"):
        await connection.answer(waiting, 5)
    assert not connection.alive
    with pytest.raises(SandboxDied):
        await connection.ready()
    await connection.close()


@pytest.mark.parametrize("fails", ["the stream", "what has become of it"])
async def test_a_reader_that_fails_leaves_no_request_waiting(fails, caplog):
    closed = RuntimeError("Session is closed")

    class Broken(FakeExecutor):
        async def forward_to(self, take):
            await super().forward_to(take)
            if fails == "the stream":
                raise closed

    async def runs():
        raise closed

    executor = Broken()
    connection = await connected(executor, runs=runs)
    waiting = connection.call()
    await executor.close()
    for request in (connection.answer(waiting, 60), connection.ready()):
        with pytest.raises(SandboxDied, match="answers can't be read: RuntimeError"):
            await asyncio.wait_for(request, 5)
    assert "is given up" in caplog.text
    await connection.close()


async def test_a_frame_that_is_under_way_when_the_sandbox_dies_waits_for_nothing():
    over = asyncio.Event()

    class Slow(FakeExecutor):
        async def write(self, data):
            if b"late" in data:
                await over.wait()
                raise ConnectionResetError("the socket is closed")

    executor = Slow()
    connection = await connected(executor, runs=False)
    waiting = connection.call()
    sending = asyncio.create_task(connection.send(1, b"D", b"late", connection.era))
    await executor.close()
    with pytest.raises(SandboxDied):
        await connection.answer(waiting, 5)
    over.set()
    for request in (sending, connection.ready()):
        with pytest.raises(SandboxDied):
            await asyncio.wait_for(request, 5)
    await connection.close()


async def test_a_stream_that_is_had_again_is_gone_on_with():
    first, second = FakeExecutor(), FakeExecutor(lambda number, kind, data: frame(number, b"F", data), hello=b"noise")
    connection = await connected(first, second, runs=True)
    under_way, era = connection.call(), await connection.ready()
    await first.close()
    with pytest.raises(DaemonRestarted, match="was away for a moment"):
        await connection.answer(under_way, 5)
    with pytest.raises(DaemonRestarted):
        await connection.send(under_way.number, b"D", b"the second half", era)
    call, era = connection.call(), await connection.ready()
    await connection.send(call.number, b"R", b"again", era)
    assert await connection.answer(call, 5) == (b"F", b"again")
    await connection.close()


async def test_a_hostile_executor_fills_no_memory():
    executor = FakeExecutor()
    connection = await connected(executor)
    read = connection.call(most=10)
    for _ in range(20):
        executor.say(frame(read.number, b"O", b"x" * MAX_FRAME))
    executor.say(HEADER.pack(2**32 - 1, read.number, b"O"))  # a frame of 4 GiB begins
    with pytest.raises(SandboxDied, match="no frame"):
        await connection.answer(read, 5)
    assert len(read.data) <= 10 + MAX_FRAME
    held = bytearray(1000)
    connection._take_frames(held)
    assert not held
    await connection.close()
