"""Rollouts: retried after infrastructure failures, counted and saved."""

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
from envs.types import InfraError, Seat, Task

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
        self.is_stuck = stuck

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
