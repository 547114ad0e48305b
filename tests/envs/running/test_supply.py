"""What the inference servers and the trainer wait for, in a sentence."""

from pathlib import Path

import pytest

from atropos_agent.engines.load import Load
from envs.records.metrics import LEAST_GROUPS, Metrics
from envs.running.concurrency import CircuitBreaker, ConcurrencyLimiter
from envs.running.supply import LOOKS, SupplyMonitor, SupplyState, describe

SHARES = {"replies": 0.7, "tools": 0.1, "sandboxes": 0.1, "the verifier": 0.1, "the rest": 0.0}


@pytest.mark.parametrize(
    ("now", "sentence"),
    [
        (SupplyState(4, 8, 8, free_mb=0.2), "held up by the disk: 0 MB are free"),
        (
            SupplyState(8, 8, 64, free_mb=12.0, shares={**SHARES, "replies": 0.3, "the verifier": 0.5}),
            "held up by the verifier: 50% of a rollout's time, 30% for replies; only 12 MB of the disk are free",
        ),
        (SupplyState(8, 8, 64, free_mb=12.0), "only 12 MB of the disk are free"),
        (
            SupplyState(1, 8, 8, pause_s=4.0, failure="sandbox: StorageFull: /d is full"),
            "held up by failures: one rollout is started every 4 s, the last by sandbox: StorageFull: /d is full",
        ),
        (SupplyState(0, 8, 8, enough=True), "the trainer has enough groups for now"),
        (SupplyState(0, 8, 8, enough=True, still_s=119.0), "the trainer has enough groups for now"),
        (
            SupplyState(0, 8, 8, enough=True, still_s=240.0),
            "the trainer has enough groups for now, and took none for 4 minutes: does it run?",
        ),
        (SupplyState(8, 8, 8, running=6, waiting=2), "inference servers are full: 6 requests run, 2 wait"),
        (SupplyState(8, 8, 64), ""),
        (
            SupplyState(8, 8, 64, shares={**SHARES, "replies": 0.1, "sandboxes": 0.7}),
            "held up by sandboxes: 70% of a rollout's time, 10% for replies",
        ),
        (
            SupplyState(8, 8, 64, shares={**SHARES, "replies": 0.3, "the verifier": 0.5}),
            "held up by the verifier: 50% of a rollout's time, 30% for replies",
        ),
        (
            SupplyState(8, 8, 8, running=5, waiting=0, shares=SHARES),
            "held up by the limit: all 8 of --env.max_concurrent_rollouts run, and no request waits",
        ),
        (
            SupplyState(8, 8, 8, shares=SHARES),
            "inference servers set the pace: 70% of a rollout's time; "
            "if they have room, raise --env.max_concurrent_rollouts (8 run)",
        ),
        (SupplyState(2, 16, 64, shares=SHARES), "held up by the queue: 2 rollouts run, 16 may (--env.max_num_workers)"),
        (SupplyState(2, 16, 64, shares=SHARES, begun=True), "every wanted group has begun"),
        (SupplyState(2, 16, 64, shares=SHARES, left=2), "only 2 samples left"),
        (SupplyState(2, 16, 64, shares=SHARES, left=9), "inference servers set the pace: 70% of a rollout's time"),
        (SupplyState(16, 16, 64, shares=SHARES), "inference servers set the pace: 70% of a rollout's time"),
    ],
)
def test_each_cause_has_its_sentence(now, sentence):
    assert describe(now) == sentence


def limiter():
    return ConcurrencyLimiter(start=4, most=4, breaker=CircuitBreaker(0.5))


def test_the_finding_is_in_the_bar_and_in_the_metrics(tmp_path):
    metrics = Metrics(rollouts=3, engine_s=1.0, tools_s=8.0, phases_s={"open": 0.5, "verifier": 0.5, "total": 10.0})
    SupplyMonitor().observe(tmp_path, metrics, limiter())
    assert metrics.supply == "held up by tools: 80% of a rollout's time, 10% for replies"
    assert metrics.line().endswith(metrics.supply)
    assert Metrics.from_json(metrics.to_json()).supply == metrics.supply


def test_waiting_for_either_sandbox_is_the_sandboxes(tmp_path):
    phases = {"open": 3.0, "sandbox": 3.0, "verifier": 3.5, "total": 10.0}
    metrics = Metrics(rollouts=3, engine_s=0.5, phases_s=phases)
    SupplyMonitor().observe(tmp_path, metrics, limiter())
    assert metrics.supply == "held up by sandboxes: 60% of a rollout's time, 5% for replies"


def test_a_trainer_that_takes_nothing_is_asked_after(tmp_path):
    supply, metrics = SupplyMonitor(), Metrics()
    supply.enough = True
    supply.stepped -= 300.0
    supply.observe(tmp_path, metrics, limiter())
    assert metrics.supply.endswith("took none for 5 minutes: does it run?")


def test_it_speaks_of_the_last_minutes(tmp_path):
    supply, metrics, limits = SupplyMonitor(), Metrics(), limiter()
    for number in range(2 * LOOKS):
        slow = "tools_s" if number < LOOKS else "engine_s"
        setattr(metrics, slow, getattr(metrics, slow) + 9.0)
        metrics.phases_s["total"] = metrics.phases_s.get("total", 0.0) + 10.0
        supply.observe(tmp_path, metrics, limits)
    limits.load = Load(running=3, waiting=2, preempted=0)
    assert "queue" in metrics.supply, "9 of 10 seconds go to replies now"
    supply.observe(tmp_path, metrics, limits)
    assert metrics.supply == "inference servers are full: 3 requests run, 2 wait"


def test_a_trainer_that_starves_is_told_once_until_it_is_content(caplog):
    supply, metrics, limits = SupplyMonitor(), Metrics(supply=""), limiter()

    def looks(number, lacks):
        supply.lacks = lacks
        for _ in range(number):
            supply.observe(Path("/"), metrics, limits)

    looks(3 * LOOKS, True)
    assert caplog.text.count("the trainer starves: it had less than a batch in 100% of the last 30 looks") == 1
    looks(LOOKS, False)
    looks(LOOKS, True)
    assert caplog.text.count("starves") == 2


def test_a_trainer_that_starves_of_equal_rewards_is_told_so(caplog, tmp_path):
    supply, metrics = SupplyMonitor(), Metrics()
    supply.lacks = True
    for _ in range(LEAST_GROUPS):
        metrics.count_group(signal=False)
    for _ in range(LOOKS):
        supply.observe(tmp_path, metrics, limiter())
    assert "the last 30 looks; in most groups all rewards are equal; " in caplog.text


def test_without_a_trainer_nobody_starves(caplog):
    supply = SupplyMonitor()
    for _ in range(2 * LOOKS):
        supply.observe(Path("/"), Metrics(), limiter())
    assert caplog.text == ""
