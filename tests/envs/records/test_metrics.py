"""Counters of a run, and their JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import orjson
import pytest
from samples import rollout

from atropos_agent.tokens.drift import Drift
from atropos_agent.types import Conditions, Counts, StopReason
from envs.records.metrics import KEPT, UNCALLED_ROLLOUTS, Latency, Metrics
from envs.types import Seat


def counted() -> Metrics:
    metrics = Metrics(started=1000.0)
    metrics.count_rollout(rollout("a"))
    metrics.count_rollout(rollout("b", reward=0.0, stop=StopReason.MAX_STEPS))
    metrics.count_group(signal=True)
    metrics.count_group(signal=False)
    metrics.groups_sent += 1
    metrics.count_failure("sandbox")
    metrics.count_failure("sandbox")
    return metrics


def test_a_rollout_is_counted_in_all_its_parts() -> None:
    metrics = counted()
    sample = rollout()
    assert (metrics.rollouts, metrics.solved, metrics.reward_sum) == (2, 1, 1.0)
    assert (metrics.steps, metrics.tool_calls, metrics.tool_errors, metrics.malformed_calls) == (4, 4, 2, 2)
    assert metrics.tokens_sampled == 2 * sample.result.sampled_tokens
    assert metrics.tokens == 2 * len(sample.result.segments[0].tokens)
    assert metrics.engine_s == pytest.approx(1.5)
    assert list(metrics.tool.samples) == [0.0625, 0.0625]
    assert metrics.phases_s == pytest.approx({"sandbox": 1.5, "agent": 4.0, "judge": 3.0})
    assert metrics.stops == Counter(answered=1, max_steps=1)


def test_the_scalars_are_shares_and_rates() -> None:
    scalars = counted().scalars(now=1010.0)
    assert scalars["reward_mean"] == 0.5
    assert scalars["signal_share"] == 0.5
    assert scalars["steps_per_rollout"] == 2.0
    assert scalars["sampled_tokens_per_s"] == pytest.approx(counted().tokens_sampled / 10)
    assert scalars["engine_p50_s"] == 0.25
    assert scalars["engine_p95_s"] == 0.5
    assert scalars["failures/sandbox"] == 2


def test_a_group_of_one_rollout_has_no_part_in_the_share_of_groups_with_a_signal() -> None:
    metrics = counted()
    metrics.count_group(signal=None)
    assert (metrics.groups, metrics.scalars()["signal_share"]) == (3, 0.5)
    alone = Metrics()
    alone.count_group(signal=None)
    assert "signal_share" not in alone.scalars()


def test_prompts_that_are_not_the_templates_own_and_refused_tokens_are_counted() -> None:
    metrics = counted()
    assert metrics.scalars()["drift_share"] == 0.0
    other = rollout("c")
    result = replace(other.result, drift=Drift.MESSAGES, counts=Counts(refused_tokens=5, unshown=2))
    metrics.count_rollout(replace(other, result=result))
    metrics.count_rollout(rollout("d"))
    metrics.count_failure("engine", refused_tokens=7)
    assert metrics.drifts == {"messages": 1}
    assert metrics.scalars()["unshown"] == 2
    scalars = metrics.scalars()
    assert (scalars["drift_share"], scalars["drift_share/messages"]) == (0.25, 0.25)
    assert scalars["tokens_refused"] == counted().tokens_refused + rollout().result.counts.refused_tokens + 12
    assert Metrics.from_json(metrics.to_json()).drifts == metrics.drifts


def test_scalars_without_a_value_are_left_out() -> None:
    scalars = Metrics().scalars()
    assert "reward_mean" not in scalars
    assert "engine_p50_s" not in scalars


def test_the_json_is_read_back() -> None:
    metrics = counted()
    again = Metrics.from_json(metrics.to_json())
    assert again.updated > metrics.started
    again.updated = metrics.updated
    assert again == metrics


def test_metrics_of_an_earlier_version_lack_figures() -> None:
    values = orjson.loads(counted().to_json())
    del values["flaky"], values["recent"], values["supply"]
    assert Metrics.from_json(orjson.dumps(values)).rollouts == 2


@pytest.mark.parametrize("data", [b"{}", b"[]", b'{"groups": 1}', b"not json"])
def test_other_json_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        Metrics.from_json(data)


def test_a_latency_keeps_the_last_observations() -> None:
    latency = Latency()
    for seconds in range(KEPT + 100):
        latency.add(float(seconds))
    assert len(latency.samples) == KEPT
    assert latency.quantile(0.0) == 100.0
    assert latency.quantile(0.5) == 599.0
    assert latency.quantile(1.0) == 1099.0


def test_a_latency_without_observations_has_no_quantile() -> None:
    assert Latency().quantile(0.5) is None


def test_a_run_in_which_nobody_calls_a_tool_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    sample = rollout()
    shown = Conditions(tools=({"type": "function"},))
    steps = [replace(step, calls=(), results=()) for step in sample.result.steps]
    silent = replace(sample, result=replace(sample.result, steps=steps, conditions=shown))
    calling = replace(sample, result=replace(sample.result, conditions=shown))
    toolless = replace(silent, result=replace(silent.result, conditions=Conditions()))
    for rollouts, warned in (
        ([silent] * (UNCALLED_ROLLOUTS - 1), 0),
        ([silent] * (2 * UNCALLED_ROLLOUTS), 1),
        ([calling, *[silent] * UNCALLED_ROLLOUTS], 0),
        ([toolless] * UNCALLED_ROLLOUTS, 0),
    ):
        caplog.clear()
        metrics = Metrics()
        for one in rollouts:
            metrics.count_rollout(one)
        assert [record.message for record in caplog.records if "called a tool" in record.message] == [
            record.message for record in caplog.records
        ]
        assert len(caplog.records) == warned


def test_a_task_in_doubt_is_named_once_with_its_tests(caplog):
    metrics = Metrics()
    metrics.count_doubts({})
    metrics.count_doubts({"sum": ["b", "a"]})
    metrics.count_doubts({"sum": ["c"], "other": []})
    said = [record.getMessage() for record in caplog.records]
    assert [line.partition(":")[0] for line in said] == ["task sum", "task other"]
    assert "got different verdicts ('a', 'b')" in said[0] and "(no test is named)" in said[1]
    assert metrics.scalars()["flaky_tasks"] == 2
    assert Metrics.from_json(metrics.to_json()).flaky == {"sum": ["a", "b", "c"], "other": []}


def test_groups_that_teach_nothing_are_told_once_until_they_teach_again(caplog):
    metrics = Metrics()
    for _ in range(500):
        metrics.count_group(signal=False)
    assert caplog.text.count("all rewards are equal") == 1
    assert "in 20 of the last 20 groups" in caplog.text and "give easier tasks" in caplog.text
    assert metrics.dull and len(metrics.recent) == 50
    for _ in range(50):
        metrics.count_group(signal=True)
    assert not metrics.dull
    for _ in range(50):
        metrics.count_group(signal=False)
    assert caplog.text.count("all rewards are equal") == 2


def test_the_bar_tells_the_share_of_groups_with_signal():
    metrics = Metrics(rollouts=8)
    for signal in (True, False, False, False):
        metrics.count_group(signal=signal)
    assert "rewards differ in 25% of groups" in metrics.line()


def test_a_rise_of_signs_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    for step in range(12):
        for number in range(10):
            one = rollout(seat=Seat(step=step))
            seen = {"cheat/looked for tests": 1.0} if step >= 7 and number < 3 else {}
            metrics.count_rollout(replace(one, verdict=replace(one.verdict, metrics=seen)))
    assert metrics.alarmed
    assert [record.message.split(":")[0] for record in caplog.records] == ["signs of cheating rise"]


def test_signs_are_counted_at_their_step() -> None:
    metrics = Metrics()
    cheat = rollout(seat=Seat(step=3))
    cheat = replace(cheat, verdict=replace(cheat.verdict, metrics={"cheat/looked for tests": 1.0}))
    for one in (cheat, cheat, rollout(seat=Seat(step=3))):
        metrics.count_rollout(one)
    assert metrics.cheats == {"looked for tests": 2}
    assert metrics.cheats_by_step == {"3": {"looked for tests": 2}}
    assert metrics.scalars()["cheats/looked for tests"] == 2
    assert Metrics.from_json(metrics.to_json()).cheats == metrics.cheats
