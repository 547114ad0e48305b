"""What blocks the event loop is seen."""

import asyncio
import time

from envs.running.watchdog import LoopWatch


async def test_what_blocks_the_loop_is_logged_with_its_stack(caplog):
    async with LoopWatch() as watch:
        watch.long_s = 0.2
        await asyncio.sleep(0.1)
        time.sleep(0.4)  # noqa: ASYNC251 - the fault
        await asyncio.sleep(0.1)
    assert watch.blocks >= 1
    assert watch.longest_s > 0.3
    assert "time.sleep(0.4)" in caplog.text


async def test_a_short_block_is_counted_and_is_no_news(caplog):
    async with LoopWatch() as watch:
        await asyncio.sleep(0.1)
        time.sleep(0.15)  # noqa: ASYNC251 - the fault
        await asyncio.sleep(0.1)
    assert watch.blocks >= 1
    assert "blocked" not in caplog.text
