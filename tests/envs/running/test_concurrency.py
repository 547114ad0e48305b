"""How many rollouts run at the same time."""

import asyncio
import itertools
import random

import pytest

from atropos_agent.engines.completions import Load
from envs.running.concurrency import CircuitBreaker, ConcurrencyLimiter, HillClimb
from envs.types import InfraError


def test_the_breaker_takes_hold_above_the_share_and_lets_go_after_successes(caplog):
    breaker = CircuitBreaker(0.5)
    for n in range(16):
        breaker.note(InfraError("engine", "400") if n % 2 else None)
    assert not breaker.is_open, "half is allowed"
    for _ in range(8):
        breaker.note(InfraError("engine", "400"))
    assert breaker.pause_s == 1.0, "what failed at the same time slows the run down once"
    assert "failed by our fault (engine:" in caplog.text
    for _ in range(3):
        breaker.note(None)
    assert not breaker.is_open


def test_concurrency_grows_while_throughput_does_and_then_stays():
    climb = HillClimb(8, 64)
    for _ in range(60):
        climb.look(tokens_per_s=100.0 * min(climb.limit, 24), saturated=True, queueing=False)
    assert 20 <= climb.limit <= 30


def test_concurrency_shrinks_while_requests_queue_and_never_below_one():
    climb = HillClimb(16, 64)
    assert climb.look(tokens_per_s=10, saturated=True, queueing=True) == 12
    for _ in range(30):
        climb.look(tokens_per_s=10, saturated=True, queueing=True)
    assert climb.limit == 1


@pytest.mark.parametrize(
    "waiting, shrinks", [([8, 8, 0, 8, 8], False), ([0, 0, 0, 0, 8], False), ([8, 8, 8, 8, 8], True)]
)
async def test_a_burst_of_requests_is_no_queue(waiting, shrinks, monkeypatch):
    limiter = ConcurrencyLimiter(start=16, most=64, breaker=CircuitBreaker(0.5))
    monkeypatch.setattr(limiter, "look_s", 0.05)
    looks = itertools.cycle(waiting)

    async def load():
        return Load(running=8, waiting=next(looks), preempted=0)

    following = asyncio.create_task(limiter.follow(load))
    await asyncio.sleep(0.5)
    following.cancel()
    assert (limiter.limit < 16) == shrinks


async def test_rollouts_are_let_in_up_to_the_limit_whatever_becomes_of_those_that_wait():
    limiter = ConcurrencyLimiter(start=3, most=3, breaker=CircuitBreaker(0.5))
    seen, rng = [], random.Random(0)

    async def one():
        async with limiter.slot():
            seen.append(limiter.active)
            await asyncio.sleep(rng.random() / 100)

    tasks = [asyncio.create_task(one()) for _ in range(60)]
    for task in rng.sample(tasks, 30):
        await asyncio.sleep(0.001)
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert max(seen) == 3
    assert limiter.active == 0
