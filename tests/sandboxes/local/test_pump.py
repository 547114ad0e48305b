"""A pipe that is always read, whoever holds its other end."""

import asyncio
import os
import time

import pytest
from stopwatch import Stopwatch

from sandboxes.local.pump import Pump
from sandboxes.output import BoundedOutput


@pytest.fixture
async def pipe():
    reader, writer = os.pipe()
    pump = Pump(reader)
    yield pump, writer
    pump.close()
    os.close(writer)


async def test_what_is_written_is_kept_until_nobody_wants_it(pipe):
    pump, writer = pipe
    output = BoundedOutput(1000)
    pump.take = output.add
    os.write(writer, b"kept")
    pump.read_available()
    pump.take = None
    os.write(writer, b"dropped")
    await asyncio.sleep(0.01)
    assert output.result() == (b"kept", False)
    assert pump.open


async def test_it_does_not_wait_for_one_who_holds_the_pipe_and_says_nothing(pipe):
    pump, _ = pipe
    watch = Stopwatch()
    await pump.wait_drained()
    assert watch.seconds < 1


async def test_it_waits_a_second_at_most_for_one_who_goes_on(pipe):
    pump, writer = pipe

    async def tick():
        while True:
            os.write(writer, b".")
            await asyncio.sleep(0.01)

    ticking = asyncio.create_task(tick())
    start, watch = time.monotonic(), Stopwatch()
    await pump.wait_drained()
    assert time.monotonic() - start > 0.5
    assert watch.seconds < 5
    ticking.cancel()
