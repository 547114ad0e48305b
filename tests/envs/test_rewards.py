"""Rewards other than all or nothing."""

from dataclasses import replace

import pytest
from samples import rollout

from atropos_agent.types import Counts
from envs.rewards import Shaping, find_reward, fraction, reward_of
from envs.types import InfraError, Outcome, Reward, Task, TestStatus, Verdict

PASSED, FAILED = TestStatus.PASSED, TestStatus.FAILED
RESULT = rollout().result  # two replies, the first with a malformed call and one that a tool refused
SOLVED = Verdict(1.0, "fine", {"a": PASSED})
TASK = Task("t", "Do it.")


def test_nothing_is_shaped_unless_it_is_asked_for():
    assert Shaping()(TASK, Outcome(RESULT, SOLVED)) == Reward(1.0)


def test_a_fraction_of_the_tests_may_count():
    half = Verdict(0.0, "half", {"a": PASSED, "b": FAILED})
    assert fraction(TASK, Outcome(RESULT, half)) == Reward(0.5, (), "1 of 2 tests are worth 0.5")


def test_a_verifier_that_refuses_what_passed_is_believed():
    forced = Verdict(0.0, "a passes whatever it expects", {"a": PASSED})
    assert fraction(TASK, Outcome(RESULT, forced)).value == 0.0


def test_malformed_calls_and_length_may_cost():
    shaping = Shaping(malformed_call=0.1, long_reply=50, free_tokens=RESULT.sampled_tokens - 10)
    reward = shaping(TASK, Outcome(RESULT, SOLVED))
    assert reward.value == pytest.approx(0.4)
    assert "1 malformed calls cost 0.1; 10 tokens beyond" in reward.explanation
    many = replace(RESULT, counts=Counts(malformed_calls=100))
    assert Shaping(malformed_call=0.1)(TASK, Outcome(many, SOLVED)).value == 0.5


def test_a_turn_may_cost_its_own_tokens():
    reward = Shaping(turn_malformed=0.25, turn_error=0.5)(TASK, Outcome(RESULT, SOLVED))
    assert reward == Reward(1.0, (-0.75, 0.0))


@pytest.mark.parametrize("value", [-1.7e308, 10**400, float("nan")])
def test_a_reward_whose_mean_with_others_is_no_number_is_none(value):
    with pytest.raises(InfraError, match="the reward is"):
        reward_of(value, 0)


@pytest.mark.parametrize("value", ["0.5", b"1", None, Reward("1"), Reward(1.0, ("1",))])
def test_a_text_is_no_reward_whatever_is_in_it(value):
    with pytest.raises(InfraError, match="return a number or a Reward"):
        reward_of(value, 1)


async def waits(task, outcome):
    return 1.0


class Asking:
    async def __call__(self, task, outcome):
        return 1.0


asks = Asking()


def of_a_task(task):
    return 1.0


MINE = Shaping(malformed_call=0.1)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("waits", "it is async"),
        ("asks", "it is async"),
        ("of_a_task", "it is called with .task, outcome.: too many positional arguments"),
        ("Shaping", "no function; name one of"),
        ("PASSED", "no function; name one of"),
        ("nowhere", "has no nowhere"),
    ],
)
def test_what_gives_no_reward_is_refused_at_the_start(name, said):
    with pytest.raises(ValueError, match=f"--env.reward test_rewards:{name}.*{said}"):
        find_reward("--env.reward", f"test_rewards:{name}")


def test_a_function_and_a_shaping_are_found():
    assert find_reward("--env.reward", "test_rewards:MINE") == MINE
    assert find_reward("--env.reward", "envs.rewards:fraction") is fraction
