"""Rows for the trainer: each rollout counts once in the baseline, and every row reaches a batch."""

import math
import statistics
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from row_samples import group_of, rollout, score

from atropos_agent.types import IGNORED, SequenceData
from envs.delivery.estimators import Estimator
from envs.delivery.rows import read_rows, to_wire
from envs.delivery.worth import Loss


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


def test_the_tokens_of_a_summary_weigh_what_the_option_says():
    made = rollout(1.0, 2, "r0", turn_advantages=(0.5, 0.25))
    first, second = made.result.steps
    made = replace(made, result=replace(made.result, steps=(first, replace(second, branch="summary"))))
    group = score([made, rollout(0.0, 1, "r1")], estimator=Estimator(summary_weight=3.0))
    assert [row.advantages(Loss.TOKENS)[-1] for row in group.rows] == [1.5, 3.25, -1.0]


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
    assert group["generation_params"]["rollout_ids"] == ["r1", "r2"]
    other, dropped = group["generation_params"]["dropped"]
    assert (dropped["rollout_id"], dropped["segment"], dropped["tokens"]) == ("r0", 1, bad.segments[1].trained)
    assert said in dropped["reason"]
    assert (other["segment"], other["reason"]) == (0, "another row of the rollout is not what was recorded")
    assert [set(row) for row in group["advantages"]] == [{0.0}] * 2, "its reward, which is in doubt, is no baseline"


def test_a_turn_that_is_in_no_row_is_noticed():
    one = rollout(1.0, 2, "r0")
    lost = replace(one, result=replace(one.result, segments=one.result.segments[:1]))
    group = score([lost, rollout(0.0, 1, "r1")]).to_wire()
    assert group["generation_params"]["rollout_ids"] == ["r1"]
    assert "1 row for 2 sequences" in group["generation_params"]["dropped"][0]["reason"]


def test_all_groups_of_a_batch_are_scored_alike_whatever_their_rows():
    split, plain = group_of((1.0, 2), (0.0, 1), (0.0, 1)), group_of((1.0, 1), (0.0, 1), (0.0, 1))
    for name in ("r0", "r1", "r2"):
        assert weight_in_the_loss(split, name) == pytest.approx(weight_in_the_loss(plain, name))


MEMBERS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.5, 1.0]),
        st.integers(1, 4),
        st.booleans(),
        st.lists(st.sampled_from([0.0, -0.5, 0.25]), min_size=4, max_size=4),
    ),
    min_size=2,
    max_size=6,
)
"""Of each: reward, rows, whether the last of them is unsound, the turns' own advantages."""


def members_of(drawn):
    made = []
    for number, (reward, rows, unsound, own) in enumerate(drawn):
        one = rollout(reward, rows, f"r{number}", turn_advantages=tuple(own[:rows]))
        if unsound:
            *good, bad = one.result.segments
            one = replace(one, result=replace(one.result, segments=(*good, replace(bad, tokens=[9, *bad.tokens[1:]]))))
        made.append(one)
    return made


@given(MEMBERS, st.sampled_from(list(Loss)), st.booleans())
def test_a_rollout_of_several_rows_weighs_one_in_every_loss(drawn, loss, apart):
    members = members_of(drawn)
    rows = score(members).rows
    if apart:
        rows = [part for row in rows for part in row.apart()]
    sound = [one for one, (_, _, unsound, _) in zip(members, drawn, strict=True) if not unsound]
    assert {row.rollout_id for row in rows} == {one.id for one in sound}
    values = Estimator().advantages([one.reward.value for one in sound])
    for one, value in zip(sound, values, strict=True):
        mine = [row for row in rows if row.rollout_id == one.id]
        assert math.fsum(row.share for row in mine) == pytest.approx(1.0)
        tokens = [
            a + value
            for step, a in zip(one.result.steps, one.reward.turn_advantages, strict=True)
            for _ in range(step.completion_tokens)
        ]
        expected = math.fsum(tokens) / (len(tokens) if loss is Loss.ROWS else 1)
        divisors = [sum(row.sampled) if loss is Loss.ROWS else 1 for row in mine]
        got = math.fsum(math.fsum(row.advantages(loss)) / by for row, by in zip(mine, divisors, strict=True))
        assert got == pytest.approx(expected)


@given(MEMBERS)
def test_rows_of_one_advantage_each_train_every_token_once(drawn):
    for row in score(members_of(drawn)).rows:
        parts = list(row.apart())
        assert [sum(part.sampled[i] for part in parts) for i in range(len(row.tokens))] == row.sampled
        for part in parts:
            assert set(part.advantages(Loss.TOKENS)) <= {0.0, part.advantage}
            SequenceData("", part.tokens, part.masks, part.logprobs)


@given(MEMBERS)
def test_rows_are_read_back_as_they_were_written(drawn):
    scored = score(members_of(drawn), 3)
    if not scored.rows:
        return
    wire = orjson.loads(orjson.dumps(scored.to_wire()))
    assert [list(row.turns) for row in scored.rows] == [list(row.turns) for row in read_rows(wire, 3)]
    assert to_wire(read_rows(wire, 3), scored.dropped) == wire


def test_each_token_has_the_version_that_sampled_it():
    one = rollout(1.0, 2, "r0")
    first, second = one.result.steps
    segments = [replace(segment, policy_version=3) for segment in one.result.segments]
    steps = (replace(first, policy_version=4), second)
    told = replace(one, result=replace(one.result, steps=steps, segments=tuple(segments)))
    rows = score([told, rollout(0.0)]).rows
    assert [row.versions for row in rows] == [[None, 4, 4], [None, 3, 3, 3], [None, None, None]]


def test_equal_rewards_give_no_advantage():
    scored = score([rollout(1.0, 2, "a"), rollout(1.0, 1, "b")])
    assert not scored.has_signal
    assert all(value == 0.0 for row in scored.to_wire()["advantages"] for value in row)


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_reward_that_would_spoil_the_trainers_batch_is_refused(reward):
    with pytest.raises(ValueError, match="has the reward"):
        group_of((reward,), (0.0,))


def test_a_rollout_without_a_sampled_token_has_no_row_but_counts_in_the_baseline():
    group = group_of((1.0, 0), (0.0, 1), (0.0, 1))
    assert group["generation_params"]["rollout_ids"] == ["r1", "r2"]
    assert group["generation_params"]["dropped"][0]["reason"] == "nothing was sampled"
    assert group["advantages"][0][-1] < 0
