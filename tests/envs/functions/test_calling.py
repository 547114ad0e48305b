"""Calls that hang are ended, or left behind; they hold up nobody."""

import asyncio
import sys
import threading
import time

import httpx
import pytest

from envs.functions import rollout
from envs.functions.calling import FunctionTimeoutError, call
from envs.types import Failure


async def test_an_async_function_that_hangs_is_cancelled(attempted):
    ended = []

    async def hangs(task, llm):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(task.id)

    found = await attempted(hangs, rollout_timeout_s=0.2)
    ((_, _, error),) = found.failed
    assert error.kind is Failure.ENVIRONMENT and "was not over after 0.2 s" in str(error)
    assert ended == ["task-0"]


async def test_an_async_function_behind_a_plain_decorator_is_cancelled_too():
    async def hangs(task, llm):
        await asyncio.Event().wait()

    def decorated(task, llm):
        return hangs(task, llm)

    work = rollout(tasks=["?"])(decorated).work
    with pytest.raises(FunctionTimeoutError, match=r"was not over after 0\.1 s"):
        await call(work, {"task": None, "llm": None}, 0.1, lambda: 0.0)


@pytest.mark.parametrize("awaited", [True, False])
async def test_a_function_that_ends_the_program_fails_its_rollout_alone(attempted, awaited):
    def ends(task, llm):
        sys.exit(3)

    async def ends_awaited(task, llm):
        sys.exit(3)

    found = await attempted(ends_awaited if awaited else ends)
    assert "SystemExit: 3" in str(found.failed[0][2])


async def test_a_sync_function_that_hangs_is_left_behind_and_its_model_answers_no_more(attempted):
    go_on, said = threading.Event(), []

    def hangs(task, llm):
        go_on.wait(120)
        headers = {"x-api-key": llm.api_key}
        try:
            said.append(httpx.post(f"{llm.base_url}/chat/completions", json={}, headers=headers).status_code)
        except httpx.TransportError as error:
            said.append(error)

    found = await attempted(hangs, rollout_timeout_s=0.2)
    assert "process=True" in str(found.failed[0][2])
    go_on.set()
    threads = [thread for thread in threading.enumerate() if thread.name == "function"]
    for thread in threads:
        thread.join(120)
    assert len(said) == 1 and said[0] != 200


async def test_time_spent_waiting_for_replies_is_not_the_functions():
    began = time.monotonic()

    async def waits(task, llm):
        await asyncio.sleep(0.3)
        return 1.0

    work = rollout(tasks=["?"])(waits).work
    given = {"task": None, "llm": None}
    assert await call(work, given, 0.1, lambda: time.monotonic() - began) == 1.0
    with pytest.raises(FunctionTimeoutError):
        await call(work, given, 0.1, lambda: 0.0)
