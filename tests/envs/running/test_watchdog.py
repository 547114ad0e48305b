"""What blocks the event loop is seen."""

import asyncio
import gc
import sys
import time

import pytest

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


async def test_a_block_that_lasts_is_told_before_it_ends(caplog):
    async with LoopWatch() as watch:
        watch.lasting_s = 0.2
        await asyncio.sleep(0.1)
        time.sleep(0.6)  # noqa: ASYNC251 - the fault
        ended = time.time()
        await asyncio.sleep(0.1)
    (told,) = [record for record in caplog.records if "has been blocked" in record.message]
    assert told.created < ended
    assert "time.sleep(0.6)" in told.message


async def test_the_stack_begins_with_the_loops_call_however_deep_it_is(caplog):
    async def of_a_user():
        _deep(30)

    async with LoopWatch() as watch:
        watch.lasting_s = 0.1
        await asyncio.create_task(of_a_user())
        await asyncio.sleep(0.1)
    (told,) = [record.message for record in caplog.records if "has been blocked" in record.message]
    assert "in of_a_user" in told and "_run_once" not in told


def _deep(calls: int) -> None:
    if calls:
        _deep(calls - 1)
    else:
        time.sleep(0.4)


async def test_a_short_block_is_counted_and_is_no_news(caplog):
    async with LoopWatch() as watch:
        await asyncio.sleep(0.1)
        time.sleep(0.15)  # noqa: ASYNC251 - the fault
        await asyncio.sleep(0.1)
    assert watch.blocks >= 1
    assert "blocked" not in caplog.text


def test_the_time_between_two_runs_of_the_loop_is_no_block(caplog):
    """Such as the steps of a trainer that runs its loop for its rollouts alone."""
    watch = LoopWatch()
    watch.long_s = 0.2
    with asyncio.Runner() as runner:
        runner.run(watch.__aenter__())
        runner.run(asyncio.sleep(0.1))
        time.sleep(0.6)
        runner.run(asyncio.sleep(0.1))
        runner.run(watch.__aexit__(None, None, None))
    assert "blocked" not in caplog.text
    assert watch.longest_s < 0.2


async def test_the_wait_for_a_processor_of_a_busy_machine_is_no_block(tmp_path, caplog):
    schedule = tmp_path / "schedstat"
    schedule.write_text("1000 0 1")
    async with LoopWatch() as watch:
        watch.long_s, watch._schedule = 0.2, schedule
        await asyncio.sleep(0.1)
        time.sleep(0.2)  # noqa: ASYNC251 - the kernel runs something else
        schedule.write_text("1000 390000000 1")
        time.sleep(0.2)  # noqa: ASYNC251 - the same
        await asyncio.sleep(0.1)
    assert watch.longest_s < 0.2
    assert "blocked" not in caplog.text


async def test_the_kernel_counts_the_waits_of_the_loops_thread():
    async with LoopWatch() as watch:
        if not watch._schedule.exists():
            pytest.skip("this kernel counts no waits")
        assert watch._waited_s() >= 0.0
        assert watch._schedule.read_text().split()[0] != "0", "the thread has run"


async def test_no_garbage_is_collected_while_a_stack_is_read(monkeypatch):
    """It would be with the interpreter's lock on threads held, and a finalizer that needs it would never end."""
    read, collecting = sys._current_frames, []

    def noted():
        collecting.append(gc.isenabled())
        return read()

    monkeypatch.setattr(sys, "_current_frames", noted)
    async with LoopWatch():
        await asyncio.sleep(0.1)
        time.sleep(0.15)  # noqa: ASYNC251 - the fault
        await asyncio.sleep(0.1)
    assert collecting and not any(collecting)
    assert gc.isenabled()
