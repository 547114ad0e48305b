"""Clean-up that a cancellation cannot cut short, and work that ends together."""

import asyncio
import gc
import threading
from contextlib import suppress

import pytest
from stopwatch import Stopwatch

from sandboxes import shielding
from sandboxes.shielding import await_shared, call_in_thread, ending, finish, on_failure, run_concurrently


class TestFinish:
    async def test_work_is_done_before_a_cancellation_goes_on(self):
        done = asyncio.Event()

        async def work() -> None:
            await asyncio.sleep(0.05)
            done.set()

        task = asyncio.create_task(finish(work()))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done.is_set()

    async def test_results_and_errors_pass_through(self):
        assert await finish(asyncio.sleep(0, result=3)) == 3
        with pytest.raises(TimeoutError):
            await finish(asyncio.wait_for(asyncio.sleep(5), 0.01))

    async def test_a_cancellation_is_not_lost_to_an_error_of_the_work(self):
        async def work() -> None:
            await asyncio.sleep(0.01)
            raise ValueError("tried again, it would go on")

        task = asyncio.create_task(finish(work()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


class TestTogether:
    async def test_results_come_in_order(self):
        assert await run_concurrently(asyncio.sleep(wait, result=wait) for wait in (0.02, 0.0, 0.01)) == [
            0.02,
            0.0,
            0.01,
        ]

    @pytest.mark.parametrize(("ended_by", "first"), [("an error", 0.01), ("a cancellation", 60)])
    async def test_nobody_works_on_after(self, ended_by, first):
        """Also where some have cleaned up before others."""
        at_work = 0

        async def work(wait: float, clean_up: float) -> None:
            nonlocal at_work
            at_work += 1
            try:
                await asyncio.sleep(wait)
                raise ValueError
            finally:
                await asyncio.sleep(clean_up)
                at_work -= 1

        working = asyncio.create_task(run_concurrently(work(*each) for each in ((60, 0.1), (first, 0.01), (60, 0.05))))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if ended_by == "a cancellation":
            working.cancel()
        with pytest.raises((ValueError, asyncio.CancelledError)):
            await working
        assert at_work == 0

    @pytest.mark.parametrize("ended_by", ["an error", "a cancellation"])
    async def test_nobody_works_on_after_cancellations_that_come_while_they_end(self, ended_by):
        ended = 0

        async def work(wait: float) -> None:
            nonlocal ended
            try:
                await asyncio.sleep(wait)
                raise ValueError
            finally:
                try:
                    await finish(asyncio.sleep(0.05))
                finally:
                    ended += 1

        working = asyncio.create_task(run_concurrently(work(wait) for wait in (60, 0.01, 60)))
        await asyncio.sleep(0.001)
        if ended_by == "a cancellation":
            working.cancel()
        for _ in range(3):
            await asyncio.sleep(0.02)
            working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert ended == 3

    async def test_what_was_begun_ends_where_the_rest_cannot_be_begun(self):
        def works():
            yield asyncio.sleep(60)
            yield asyncio.sleep(60)
            raise ValueError("there are no more")

        with pytest.raises(ValueError, match="no more"):
            await run_concurrently(works())
        await asyncio.sleep(0)
        assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


async def test_what_takes_a_cancellation_for_something_else_is_cancelled_again(monkeypatch):
    monkeypatch.setattr(shielding, "AGAIN_S", 0.01)
    swallowed = 0

    async def stubborn():
        nonlocal swallowed
        while swallowed < 2:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                swallowed += 1
        await asyncio.sleep(60)

    async def failing():
        raise ValueError("nobody asks for it")

    tasks = [asyncio.create_task(stubborn()), asyncio.create_task(failing())]
    await asyncio.sleep(0)
    async with asyncio.timeout(120):
        await shielding.stop(tasks)
    assert tasks[0].cancelled() and tasks[1].done()


class TestAProgram:
    async def test_that_still_runs_has_ended_behind_its_block_also_where_that_is_cancelled_twice(self):
        process = await asyncio.create_subprocess_exec("sleep", "600")
        begun = asyncio.Event()

        async def work() -> None:
            async with ending(process):
                begun.set()
                await process.wait()

        task = asyncio.create_task(work())
        await begun.wait()
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert process.returncode == -9

    async def test_that_has_ended_is_left_alone(self):
        process = await asyncio.create_subprocess_exec("true")
        async with ending(process):
            await process.wait()
        assert process.returncode == 0


@pytest.mark.parametrize("error", [ValueError("wrong"), asyncio.CancelledError(), None])
def test_what_ends_a_block_is_told_and_goes_on(error):
    errors = []
    with suppress(ValueError, asyncio.CancelledError), on_failure(errors.append):
        if error is not None:
            raise error
    assert errors == ([] if error is None else [error])


async def test_the_error_of_shared_work_that_nobody_waits_for_any_more_is_no_traceback(caplog):
    async def work():
        await release.wait()
        raise ValueError("late")

    release, working = asyncio.Event(), []
    for _ in range(2):
        task = asyncio.create_task(work())
        waiting = asyncio.create_task(await_shared(task))
        working.append((task, waiting))
    await asyncio.sleep(0)
    working[0][1].cancel()
    release.set()
    with pytest.raises(ValueError, match="late"):
        await working[1][1]
    await asyncio.sleep(0)
    del task, waiting, working
    gc.collect()
    assert not caplog.records


def test_a_call_that_hangs_in_a_thread_holds_up_no_end():
    go_on = threading.Event()

    async def call():
        assert await call_in_thread(lambda: 3) == 3
        async with asyncio.timeout(0.1):
            await call_in_thread(lambda: go_on.wait(60))

    watch = Stopwatch()
    with pytest.raises(TimeoutError):
        asyncio.run(call())
    assert watch.seconds < 30
    go_on.set()
