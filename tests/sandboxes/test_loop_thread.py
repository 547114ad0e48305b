"""An event loop in a thread of its own."""

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest

from sandboxes.loop_thread import LoopThread


@pytest.fixture
def loop():
    thread = LoopThread()
    thread.start()
    yield thread
    thread.close()
    assert not thread.is_running


async def where():
    return threading.current_thread().name


def test_work_is_done_in_the_thread_and_its_errors_come_back(loop):
    async def fails():
        raise KeyError("no")

    assert loop.run(where()) == "sandboxes"
    with pytest.raises(KeyError, match="no"):
        loop.run(fails())


def test_a_context_is_held_in_one_task_and_gets_the_error_of_its_block(loop):
    seen = []

    @asynccontextmanager
    async def manager():
        seen.append(asyncio.current_task())
        try:
            yield "held"
        except ValueError as error:
            seen.append(str(error))
            raise
        finally:
            seen.append(asyncio.current_task())

    with pytest.raises(ValueError, match="inside"), loop.open_context(manager) as value:
        assert value == "held"
        raise ValueError("inside")
    assert seen[1] == "inside"
    assert seen[0] is seen[2]


async def test_a_call_that_is_cancelled_in_another_loop_waits_for_the_end_of_its_work(loop):
    began, ended = threading.Event(), threading.Event()

    async def work():
        try:
            began.set()
            await asyncio.sleep(60)
        finally:
            ended.set()

    call = asyncio.create_task(loop.run_async(work()))
    await asyncio.to_thread(began.wait)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert ended.is_set()


def test_it_must_run_and_not_call_itself(loop):
    with pytest.raises(RuntimeError, match="use the backend in its block"):
        LoopThread().run(where())

    async def calls_itself():
        loop.run(where())

    with pytest.raises(RuntimeError, match="await the async method instead"):
        loop.run(calls_itself())
