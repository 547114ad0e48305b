"""A worker process does what the driver says, once."""

import asyncio
import logging
from dataclasses import replace

import pytest
from sums import Sums, right

from envs.running.remote import outbound as outbound_module
from envs.running.remote.messages import RolloutFailure, RolloutOrder, RolloutPiece, SampledTokens, Turn, join_rollout
from envs.running.remote.pool import start_message_of
from envs.running.remote.process import WorkerProcess
from envs.types import Failure, Seat, Task
from sandboxes.base import SandboxDied

TASK = Task("sum-3", "What is 3 + 3?")


class Broken(Sums):
    async def setup(self, resources):
        raise SandboxDied("no Docker daemon")


class Cancelled(Sums):
    async def setup(self, resources):
        raise asyncio.CancelledError


class Failing(Sums):
    def failing(self, task, attempt):
        return True


@pytest.fixture
def policy():
    return right


@pytest.fixture
async def opened(make_env, monkeypatch):
    """Opens a worker process for an environment; it is closed at the end."""
    monkeypatch.setattr(outbound_module, "GATHER_S", 0.01)
    processes = []

    async def opened(cls=Sums):
        processes.append(process := WorkerProcess())
        assert await process.open(await start_message_of(make_env(cls))) is None
        return process

    yield opened
    for process in processes:
        await process.close()


async def told(
    process, last=lambda news: isinstance(news, RolloutFailure) or (isinstance(news, RolloutPiece) and news.last)
):
    """What a process tells, up to the end of a rollout."""
    found, arrived = [], 0
    async with asyncio.timeout(120):
        while not any(map(last, found)):
            for number, news in await process.news(arrived):
                arrived = number
                found.append(news)
    return found


async def test_an_order_is_carried_out_once_with_its_turns_told_before_its_end(opened, engine):
    process = await opened()
    for _ in range(2):
        await process.begin(RolloutOrder(4, TASK, Seat(9, 1), ()))
    news = await told(process)
    made = [one for one in news if isinstance(one, RolloutPiece)]
    rollout = join_rollout([one.piece for one in made], TASK, Seat(9, 1))
    assert rollout.verdict.reward == 1.0
    assert [one.number for one in news if isinstance(one, Turn)] == [4, 4]
    assert engine.requests == 2


async def test_turns_that_come_with_the_order_are_not_sampled_again(opened, engine):
    process = await opened()
    await process.begin(RolloutOrder(1, TASK, Seat(9, 1), ()))
    turns = [one.body for one in await told(process) if isinstance(one, Turn)]
    other = await opened()
    await other.begin(RolloutOrder(1, TASK, Seat(9, 1), turns))
    assert not [one for one in await told(other) if isinstance(one, Turn | SampledTokens)]
    assert engine.requests == 2


async def test_a_failure_is_told_with_how_far_the_recording_came(opened):
    process = await opened(Failing)
    await process.begin(RolloutOrder(1, TASK, Seat(9, 1), ()))
    (failed,) = [one for one in await told(process) if isinstance(one, RolloutFailure)]
    assert failed.failure.kind is Failure.SANDBOX
    assert failed.progress == (0, 0, False)


async def test_what_is_in_the_way_of_the_environment_is_told(make_env):
    process = WorkerProcess()
    failure = await process.open(await start_message_of(make_env(Broken)))
    assert (failure.kind, failure.message) == (Failure.SANDBOX, "SandboxDied: no Docker daemon")
    await process.close()


async def test_an_opening_that_is_cancelled_from_within_is_not_waited_for(make_env):
    opening = await start_message_of(make_env(Cancelled))
    failure = await asyncio.wait_for(WorkerProcess().open(opening), 30)
    assert failure.kind == Failure.ENVIRONMENT and "cancelled from within" in failure.message


async def test_what_the_driver_wants_logged_ends_with_the_worker(make_env):
    process, before = WorkerProcess(), logging.getLogger().level
    assert await process.open(replace(await start_message_of(make_env(Sums)), log_level=logging.CRITICAL)) is None
    assert logging.getLogger().level == logging.CRITICAL
    await process.close()
    assert logging.getLogger().level == before
