"""Clean-up that a cancellation cannot cut short."""

import asyncio

import pytest

from sandboxes.shielding import finish


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
