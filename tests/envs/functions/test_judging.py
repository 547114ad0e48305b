"""What values are worth."""

import pytest

from envs.functions.judging import judged, verdict_of
from envs.types import InfraError, Task, Verdict


class Half:
    def __float__(self):
        return 0.5


@pytest.mark.parametrize(("value", "reward"), [(1, 1.0), (True, 1.0), (0.25, 0.25), (Half(), 0.5)])
def test_numbers_are_rewards(value, reward):
    assert verdict_of("f", value).reward == reward


@pytest.mark.parametrize("value", [None, [1.0], {}, "good"])
def test_what_is_no_number_is_no_reward(value):
    with pytest.raises(InfraError, match="f returned"):
        verdict_of("f", value)


async def test_a_score_is_given_what_it_names_and_may_be_async():
    class Result:
        final_response = "four"

    async def score(answer, task, more=3):
        return Verdict(float(answer == task.instruction), "compared")

    assert (await judged(score, Task("a", "four"), Result())).reward == 1.0
