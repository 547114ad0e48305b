"""Rollouts: retried when they fail by our fault, counted and saved."""

from dataclasses import replace

import pytest
from samples import rollout

from envs.records.atif import RolloutWriter
from envs.records.metrics import Metrics
from envs.records.read import read_at
from envs.records.redaction import Redactor
from envs.running import rollouts as module
from envs.running.concurrency import CircuitBreaker, ConcurrencyLimiter
from envs.running.failures import FailureLog
from envs.running.rollouts import Rollouts
from envs.types import InfraError, Leaf, Reward, Seat, Task

TASK = Task("t", "Do it.")


class Scripted:
    """A worker that fails as often as it is told to."""

    def __init__(self, *errors):
        self.errors = list(errors)

    async def run(self, task, seat):
        if self.errors:
            raise self.errors.pop(0)
        return rollout(seat=seat)


class Recorded:
    """Notes what is asked of a recording."""

    def __init__(self, *, stuck=False):
        self.asked = []
        self.stuck = stuck

    async def rewind(self):
        self.asked.append("rewind")

    async def forget(self):
        self.asked.append("forget")


@pytest.fixture
async def make(tmp_path, monkeypatch):
    """Rollouts of a worker, without pauses between attempts."""
    monkeypatch.setattr(module, "wait_exponential", lambda **_: lambda _: 0.0)
    breaker, metrics = CircuitBreaker(0.5), Metrics()
    limiter = ConcurrencyLimiter(start=2, most=2, breaker=breaker)
    failures = FailureLog(tmp_path / "quarantined.jsonl", metrics, breaker, Redactor())
    async with RolloutWriter(tmp_path) as writer:
        yield lambda worker: Rollouts(worker, limiter, failures, metrics, writer, attempts=3)


async def test_a_rollout_is_counted_once_and_saved(make, tmp_path):
    rollouts = make(Scripted())
    made, place = await rollouts.make(TASK, Seat(4, 2, step=9))
    assert read_at(tmp_path, place).seat == made.seat == Seat(4, 2, step=9)
    assert (rollouts.metrics.rollouts, rollouts.limiter.active) == (1, 0)


async def test_what_fails_by_our_fault_is_retried_and_counted_by_kind(make):
    rollouts = make(Scripted(InfraError("sandbox", "died"), InfraError("engine", "500")))
    recorded = Recorded()
    await rollouts.make(TASK, Seat(), recorded)
    assert rollouts.metrics.failures == {"sandbox": 1, "engine": 1}
    assert recorded.asked == ["rewind", "forget", "rewind"], "an engine's keeps the replies, a sandbox's does not"


@pytest.mark.parametrize(
    ("kind", "stuck", "asked"),
    [
        ("engine", False, ["rewind", "rewind", "rewind"]),
        ("sandbox", False, ["rewind", "forget", "forget", "forget"]),
        ("verifier", True, ["rewind", "forget", "forget", "forget"]),
    ],
)
async def test_replies_that_may_be_why_it_fails_are_forgotten_also_after_the_last_attempt(make, kind, stuck, asked):
    recorded = Recorded(stuck=stuck)
    with pytest.raises(InfraError):
        await make(Scripted(*[InfraError(kind, "fails") for _ in range(3)])).make(TASK, Seat(), recorded)
    assert recorded.asked == asked


async def test_what_fails_every_time_raises_its_last_failure(make):
    rollouts = make(Scripted(*[InfraError("verifier", f"crash {n}") for n in range(3)]))
    with pytest.raises(InfraError, match="crash 2"):
        await rollouts.make(TASK, Seat())
    assert rollouts.metrics.failures == {"verifier": 3}
    assert rollouts.metrics.rollouts == rollouts.limiter.active == 0


async def test_a_task_that_can_not_be_made_as_it_is_is_tried_once(make):
    worker = Scripted(InfraError("task", "line 3: there is no instruction RUNN"))
    with pytest.raises(InfraError, match="RUNN"):
        await make(worker).make(TASK, Seat())


async def test_a_bug_in_a_worker_is_not_retried(make):
    worker = Scripted(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        await make(worker).make(TASK, Seat())


class Branching(Scripted):
    """A worker with branches of which one succeeds. failing: how many do not, in a rollout that does or doesn't."""

    failing = 3

    async def run(self, task, seat):
        failures = [InfraError("sandbox", f"branch {n}") for n in range(self.failing)]
        try:
            leaves = (Leaf(1.0, (0, 1)), Leaf(1.0, (0, 2)))
            made = await super().run(task, seat)
            return replace(made, failures=failures, reward=Reward(1.0, leaves=leaves))
        except InfraError as error:
            error.beside = failures
            raise


async def test_failures_of_branches_are_counted_and_open_the_circuit_breaker_like_those_of_rollouts(make):
    rollouts = make(Branching())
    for _ in range(5):
        await rollouts.make(TASK, Seat(step=4))
    assert rollouts.metrics.failures == {"sandbox": 15}
    assert rollouts.limiter.breaker.is_open, "15 of 25 have failed"


async def test_leaves_close_the_circuit_breaker_and_lower_the_share_of_failures_like_rollouts(make):
    worker = Branching()
    worker.failing = 1
    rollouts = make(worker)
    for _ in range(20):
        await rollouts.make(TASK, Seat())
    assert not rollouts.limiter.breaker.is_open, "one branch of three fails"


async def test_failures_of_branches_are_counted_also_if_no_leaf_is_had(make):
    rollouts = make(Branching(InfraError("verifier", "crash")))
    await rollouts.make(TASK, Seat())
    assert rollouts.metrics.failures == {"sandbox": 6, "verifier": 1}
