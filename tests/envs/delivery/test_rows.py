"""Rows for the trainer: each rollout counts once in the baseline, and every row reaches a batch."""

import math
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from row_samples import group_of, rollout, score

from atropos_agent.types import IGNORED


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
