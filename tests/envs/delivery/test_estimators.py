"""Advantages by hand, and what holds of each estimator."""

import math
import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.config import AgentEnvConfig
from envs.delivery.estimators import Estimator

KINDS = ["group-std", "group-mean", "leave-one-out"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("group-std", [3**0.5, -(3**-0.5), -(3**-0.5), -(3**-0.5)]),
        ("group-mean", [0.75, -0.25, -0.25, -0.25]),
        ("leave-one-out", [1.0, -1 / 3, -1 / 3, -1 / 3]),
    ],
)
def test_one_success_in_four(kind, expected):
    assert Estimator(kind).advantages([1.0, 0.0, 0.0, 0.0]) == pytest.approx(expected)


@given(st.sampled_from(KINDS), st.lists(st.floats(-4, 4).map(lambda x: round(x, 3)), max_size=9))
def test_advantages_sum_to_nothing_and_keep_the_order_of_rewards(kind, rewards):
    found = Estimator(kind).advantages(rewards)
    assert len(found) == len(rewards)
    assert math.fsum(found) == pytest.approx(0.0, abs=1e-6)
    assert [a < b for a, b in pairwise(found)] == [a < b for a, b in pairwise(rewards)]


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=8))
def test_leave_one_out_compares_each_with_the_others(rewards):
    found = Estimator("leave-one-out").advantages(rewards)
    for place, value in enumerate(found):
        others = rewards[:place] + rewards[place + 1 :]
        assert value == pytest.approx(rewards[place] - statistics.fmean(others))


def test_of_two_successes_the_shorter_is_worth_more_and_failures_stay_alike():
    short, long, failed, other = Estimator("group-mean", 0.5).advantages([1.0, 1.0, 0.0, 0.0], [10, 30, 5, 500])
    assert short > long > failed == other
    assert short - long == pytest.approx(0.5 * (1 / (1 + math.exp(-1)) - 1 / (1 + math.exp(1))))


def test_successes_of_equal_length_stay_equal():
    assert Estimator("group-std", 0.5).advantages([1.0, 1.0], [10, 10]) == [0.0, 0.0]
    assert Estimator("group-std", 0.5).advantages([0.0, 0.0], [10, 20]) == [0.0, 0.0]


def test_an_option_of_the_run_chooses_it():
    assert Estimator.of(AgentEnvConfig()) == Estimator()
    assert Estimator.of(AgentEnvConfig(estimator="leave-one-out", length_penalty=0.25)) == Estimator(
        "leave-one-out", 0.25
    )
    for wrong in ({"estimator": "median"}, {"length_penalty": 2}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            AgentEnvConfig(**wrong)
    with pytest.raises(ValueError, match="there is no estimator 'median'"):
        Estimator("median").advantages([0.0, 1.0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rewards", [[0.1 + 0.2, 0.3, 0.3], [0.1 + 0.2 - 0.3, 0.0], [sum([0.1] * 10), 1.0]])
def test_rewards_that_differ_by_rounding_are_equal(kind, rewards):
    assert Estimator(kind).advantages(rewards) == [0.0] * len(rewards)
