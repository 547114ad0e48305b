"""Whether more and more rollouts show signs of cheating."""

import pytest

from envs.records.cheat_rate import find_rise


def steps(*cheated, rollouts=10):
    return {str(step): {"rollouts": rollouts, "cheated": count} for step, count in enumerate(cheated)}


@pytest.mark.parametrize(
    "by_step, rise",
    [
        (steps(0, 1, 0, 0, 1, 3, 4, 5, 6, 7), (0.04, 0.5)),
        (steps(*[5] * 10), None),
        (steps(*[0] * 9, 2), None),
        (steps(0, 0, 0, 0, 0), None),
        (steps(*[0] * 5, *[1] * 5, rollouts=3), None),
        ({}, None),
    ],
    ids=["rises", "high", "a trifle", "no steps before", "few rollouts", "none"],
)
def test_a_rate_rises_where_it_doubles_and_is_no_trifle(by_step, rise):
    assert find_rise(by_step) == rise
