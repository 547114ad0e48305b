"""How many rollouts run at the same time."""

import asyncio
import itertools
import random

import pytest
from skipping_loop import SkippingLoop

from atropos_agent.engines.load import Load
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
    assert "had infrastructure failures (engine:" in caplog.text
    for _ in range(3):
        breaker.note(None)
    assert not breaker.is_open


def test_concurrency_grows_while_throughput_does_and_then_stays():
    climb = HillClimb(8, 64)
    for _ in range(60):
        climb.observe(tokens_per_s=100.0 * min(climb.limit, 24), saturated=True)
    assert 20 <= climb.limit <= 30


def test_concurrency_shrinks_while_requests_queue_and_never_below_one():
    climb = HillClimb(16, 64)
    assert climb.observe(tokens_per_s=10, saturated=True, room=0) == 12
    for _ in range(30):
        climb.observe(tokens_per_s=10, saturated=True, room=0)
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

    following = asyncio.create_task(limiter.follow(load, lambda: 0))
    await asyncio.sleep(0.5)
    following.cancel()
    assert (limiter.limit < 16) == shrinks


class Engine:
    """Samples 100 tokens a reply, as many a second as it can. most: requests beyond which each is slower."""

    def __init__(self, most=10**6, *, tells=True):
        self.most, self.tells = most, tells
        self.running = self.sampled = 0

    async def reply(self, seconds):
        self.running += 1
        for _ in range(4):
            await asyncio.sleep(seconds / 4 * max(1.0, self.running / self.most))
        self.running -= 1
        self.sampled += 100

    async def load(self):
        return Load(self.running, 0, 0) if self.tells else None


def simulated(engine, minutes, *, most=512, opening_s=2.0):
    """Run rollouts of 60 s, half of it in tools, on a clock that skips. Returns the limit at each second."""
    rng, limits = random.Random(0), []
    limiter = ConcurrencyLimiter(start=16, most=most, breaker=CircuitBreaker(0.5))

    async def rollouts():
        while True:
            async with limiter.slot():
                await asyncio.sleep(opening_s)
                for _ in range(4):
                    await engine.reply(rng.uniform(4, 11))
                    await asyncio.sleep(rng.uniform(1, 14))

    async def run():
        tasks = [asyncio.create_task(rollouts()) for _ in range(most + 8)]
        tasks.append(asyncio.create_task(limiter.follow(engine.load, lambda: engine.sampled)))
        for _ in range(int(60 * minutes)):
            await asyncio.sleep(1)
            limits.append(min(limiter.limit, limiter.active))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    loop = SkippingLoop()
    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
    return limits


@pytest.mark.parametrize("tells", [True, False])
def test_servers_that_take_anything_have_512_rollouts_within_five_minutes(tells):
    assert max(simulated(Engine(tells=tells), 5)) == 512


def test_slow_start_ends_where_more_rollouts_sample_no_more():
    limits = simulated(Engine(16), 12, most=256)
    assert max(limits) <= 128, "32 rollouts, half of them in tools, keep 16 requests under way"
    assert 24 <= limits[-1] <= 48


class Queueing(Engine):
    """Lets requests wait that are more than it can work on."""

    def __init__(self, most):
        super().__init__()
        self.places, self.waiting = asyncio.Semaphore(most), 0

    async def reply(self, seconds):
        self.waiting += 1
        async with self.places:
            self.waiting -= 1
            await super().reply(seconds)

    async def load(self):
        return Load(self.running, self.waiting, 0)


def test_a_queue_takes_away_as_many_as_wait_and_no_more():
    limits = simulated(Queueing(64), 12)
    assert max(limits) <= 256, "128 rollouts, half of them in tools, keep 64 requests under way"
    assert min(limits[240:]) >= 115 and limits[-1] <= 150


def test_nothing_grows_before_the_first_conversation_has_begun():
    assert max(simulated(Engine(), 2, opening_s=300.0)) == 16


def test_doubling_goes_on_behind_a_pause_and_ends_with_a_queue():
    climb = HillClimb(16, 512)
    for rate in (100, 100, 60, 120):  # a look came before the new ones had begun
        climb.observe(tokens_per_s=rate * climb.limit, saturated=True)
    assert climb.limit == 256
    assert climb.observe(tokens_per_s=1, saturated=True, room=0) == 204
    for _ in range(12):
        climb.observe(tokens_per_s=100 * climb.limit, saturated=True)
    assert climb.limit == 204, "what was found is kept for a while"


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
