"""Rows for the trainer: each rollout counts once in the baseline, and every row reaches a batch."""

import gzip
import math
import statistics
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atropos_agent.types import IGNORED, AgentResult, AgentStep, Exchange, SequenceData, StopReason
from envs.delivery.packing import RowPacker
from envs.delivery.row_check import check_group
from envs.delivery.rows import Origin, score_group
from envs.types import Reward, Rollout, Task, Verdict

TASK = Task("t", "Do it.")


def rollout(reward, segments=1, name="r", *, turn_advantages=()):
    """A rollout of one reply a segment; a reply of segment n (from 0) has n + 2 tokens."""
    rows, steps, record = [], [], []
    for n in range(segments):
        ids, logprobs = list(range(2, n + 4)), [-0.5] * (n + 2)
        rows.append(SequenceData("ab", [1, *ids], [IGNORED, *ids], [1.0, *logprobs], segment=n))
        steps.append(AgentStep(n, "ab", segment=n, start=1, completion_tokens=len(ids)))
        record.append(Exchange(False, (1,), tuple(ids), tuple(logprobs)))
    result = AgentResult(
        True,
        "done",
        tuple(steps),
        StopReason.ANSWERED,
        tuple(rows),
        ({"role": "user", "content": "x"},),
        record=tuple(record),
    )
    return Rollout(name, TASK, result, Verdict(reward, "said"), Reward(reward, turn_advantages))


def score(rollouts, number=0):
    return score_group(rollouts, Origin(number, f"g{number}", TASK.id))


def group_of(*rollouts):
    return score([rollout(*r, name=f"r{i}") for i, r in enumerate(rollouts)]).to_wire()


def sent(packet):
    """What a trainer gets of a packet."""
    return orjson.loads(b"{" + gzip.decompress(packet.body))


def test_a_group_of_single_rows_passes_as_it_is():
    scored = score([rollout(1.0, name="a"), rollout(0.0, name="b")])
    group = scored.to_wire()
    assert group["scores"] == [1.0, 0.0]
    assert group["advantages"] is None
    assert check_group(group) == []
    (packet,), waiting = RowPacker(2).add(scored, step=0)
    arrived = sent(packet)
    assert arrived["generation_params"].pop("delivery_id") == packet.name
    assert arrived == group
    assert not waiting


def weight_in_the_loss(group, name):
    """The sum over a rollout's rows of the mean advantage of their trained tokens: what it weighs in a
    loss that averages over the tokens of a row, and then over rows."""
    total = 0.0
    for i, rollout_id in enumerate(group["generation_params"]["rollout_ids"]):
        if rollout_id == name:
            trained = [a for a, m in zip(group["advantages"][i], group["masks"][i], strict=True) if m != IGNORED]
            total += math.fsum(trained) / len(trained)
    return total


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.integers(1, 4)), min_size=2, max_size=6))
def test_each_member_counts_once_in_the_baseline_and_once_in_the_loss(members):
    group = group_of(*members)
    rewards = [reward for reward, _ in members]
    mean = statistics.fmean(rewards)
    std = statistics.pstdev(rewards) or 1.0
    assert group["scores"] == [reward for reward, segments in members for _ in range(segments)]
    if group["advantages"] is None:
        assert all(segments == 1 for _, segments in members)
        return
    for i, reward in enumerate(rewards):
        assert weight_in_the_loss(group, f"r{i}") == pytest.approx((reward - mean) / std)
    for row, mask in zip(group["advantages"], group["masks"], strict=True):
        assert len(row) == len(mask)
        assert all(value == 0.0 for value, m in zip(row, mask, strict=True) if m == IGNORED)


def test_every_token_of_a_rollout_weighs_the_same_in_whichever_segment_it_is():
    group = group_of((1.0, 3), (0.0, 1))
    weights = [
        row[-1] / sum(m != IGNORED for m in mask)
        for row, mask in zip(group["advantages"][:3], group["masks"][:3], strict=True)
    ]
    assert weights == pytest.approx([weights[0]] * 3)


def test_each_row_says_whose_it_is_and_with_which_weights_it_was_sampled():
    params = group_of((1.0, 3), (0.0, 1))["generation_params"]
    assert params["rollout_ids"] == ["r0", "r0", "r0", "r1"]
    assert params["segments"] == [0, 1, 2, 0]
    assert params["policy_versions"] == [None] * 4
    assert params["dropped"] == []


def test_turns_may_have_advantages_of_their_own():
    members = [rollout(1.0, 2, "r0", turn_advantages=(0.5, -1.0)), rollout(0.0, 1, "r1")]
    group = score(members).to_wire()
    share = [2 / 5, 3 / 5]
    assert group["advantages"][0] == pytest.approx([0.0, *[1.5 * share[0]] * 2])
    assert group["advantages"][1] == pytest.approx([0.0, *[0.0 * share[1]] * 3])
    assert group["advantages"][2] == pytest.approx([0.0, -1.0, -1.0])


@pytest.mark.parametrize("given_advantages", [(0.5,), (0.5, math.nan)])
def test_turn_advantages_that_fit_no_turns_are_refused(given_advantages):
    with pytest.raises(ValueError, match="turn advantage"):
        score([rollout(1.0, 2, turn_advantages=given_advantages)])


@pytest.mark.parametrize(
    ("field", "change", "said"),
    [
        ("tokens", lambda row: replace(row, tokens=[9, *row.tokens[1:]]), "tokens: place 0"),
        ("logprobs", lambda row: replace(row, logprobs=[1.0, -0.25, *row.logprobs[2:]]), "logprobs: place 1"),
        (
            "mask",
            lambda row: replace(
                row, masked_tokens=[IGNORED, IGNORED, *row.tokens[2:]], logprobs=[1.0, 1.0, *row.logprobs[2:]]
            ),
            "masked_tokens: place 1",
        ),
    ],
)
def test_a_row_that_is_not_what_was_recorded_is_dropped_with_its_reason(field, change, said):
    members = [rollout(1.0, 2, "r0"), rollout(0.0, 1, "r1"), rollout(0.0, 1, "r2")]
    good = members[0].result
    bad = replace(good, segments=(good.segments[0], change(good.segments[1])))
    group = score([replace(members[0], result=bad), *members[1:]]).to_wire()
    assert group["generation_params"]["rollout_ids"] == ["r0", "r1", "r2"]
    (dropped,) = group["generation_params"]["dropped"]
    assert (dropped["rollout_id"], dropped["segment"], dropped["tokens"]) == ("r0", 1, bad.segments[1].trained)
    assert said in dropped["reason"]
    assert weight_in_the_loss(group, "r0") == pytest.approx(2**0.5 * 2 / 5), "its reward stays in the baseline"


def test_a_turn_that_is_in_no_row_is_noticed():
    one = rollout(1.0, 2, "r0")
    lost = replace(one, result=replace(one.result, segments=one.result.segments[:1]))
    group = score([lost, rollout(0.0, 1, "r1")]).to_wire()
    assert group["generation_params"]["rollout_ids"] == ["r1"]
    assert "1 rows of 2 sequences" in group["generation_params"]["dropped"][0]["reason"]


def test_equal_rewards_give_no_advantage():
    scored = score([rollout(1.0, 2, "a"), rollout(1.0, 1, "b")])
    assert not scored.has_signal
    assert all(value == 0.0 for row in scored.rows for value in row.advantages)


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_reward_that_would_spoil_the_trainers_batch_is_refused(reward):
    with pytest.raises(ValueError, match="has the reward"):
        group_of((reward,), (0.0,))


def test_a_rollout_without_a_sampled_token_has_no_row_but_counts_in_the_baseline():
    group = group_of((1.0, 0), (0.0, 1), (0.0, 1))
    assert group["generation_params"]["rollout_ids"] == ["r1", "r2"]
    assert group["generation_params"]["dropped"][0]["reason"] == "nothing was sampled"
    assert group["advantages"][0][-1] < 0


@given(st.lists(st.lists(st.integers(1, 5), min_size=4, max_size=4), max_size=8))
def test_every_row_leaves_in_a_group_of_the_registered_size_or_waits(sizes):
    packer = RowPacker(4)
    groups, rows, waiting = [], 0, []
    for number, segments in enumerate(sizes):
        scored = score([rollout(float(i % 2), n, f"g{number}r{i}") for i, n in enumerate(segments)], number)
        rows += len(scored.rows)
        packets, waiting = packer.add(scored, step=0)
        assert all(sum(packet.rows.values()) == 4 for packet in packets)
        groups += map(sent, packets)
    assert all(len(group["tokens"]) == 4 for group in groups)
    assert all(check_group(group) == [] for group in groups)
    assert sum(len(group["tokens"]) for group in groups) + len(waiting) == rows
    assert len(waiting) < 4


def test_rows_that_wait_for_others_go_on_waiting_after_a_restart():
    first = score([rollout(float(i % 2), 1 + i // 4, f"a{i}") for i in range(5)], 7)  # six rows
    packets, waiting = RowPacker(4).add(first, step=0)
    assert [dict(p.rows) for p in packets] == [{7: 4}]
    assert [dict(p.rows) for p in waiting] == [{7: 1}, {7: 1}]
    second = score([rollout(1.0, 2, "b")], 8)
    packets, waiting = RowPacker(4, waiting).add(second, step=0)
    assert [dict(p.rows) for p in packets] == [{7: 2, 8: 2}]
    assert not waiting
    arrived = sent(packets[0])
    assert arrived["generation_params"]["rollout_ids"] == ["a4", "a4", "b", "b"]
    assert arrived["generation_params"]["group_id"] is None, "they are of two groups"
    assert arrived["generation_params"]["temperature"] == 1.0
    assert check_group(arrived) == []
