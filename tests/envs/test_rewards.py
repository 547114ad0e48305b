"""Rewards other than all or nothing."""

from dataclasses import replace

import pytest
from samples import rollout

from atropos_agent.types import Counts
from envs.rewards import Shaping, shaped
from envs.types import Reward, TestStatus, Verdict

PASSED, FAILED = TestStatus.PASSED, TestStatus.FAILED
RESULT = rollout().result  # two replies, the first with a malformed call and one that a tool refused
SOLVED = Verdict(1.0, "fine", {"a": PASSED})


def test_nothing_is_shaped_unless_it_is_asked_for():
    assert shaped(SOLVED, RESULT, Shaping()) == Reward(1.0)


def test_a_fraction_of_the_tests_may_count():
    half = Verdict(0.0, "half", {"a": PASSED, "b": FAILED})
    assert shaped(half, RESULT, Shaping(tests="fraction")) == Reward(0.5, (), "1 of 2 tests are worth 0.5")


def test_a_verifier_that_refuses_what_passed_is_believed():
    forced = Verdict(0.0, "a passes whatever it expects", {"a": PASSED})
    assert shaped(forced, RESULT, Shaping(tests="fraction")).value == 0.0


def test_malformed_calls_and_length_may_cost():
    shaping = Shaping(malformed_call=0.1, long_reply=50, free_tokens=RESULT.sampled_tokens - 10)
    reward = shaped(SOLVED, RESULT, shaping)
    assert reward.value == pytest.approx(0.4)
    assert "1 malformed calls cost 0.1; 10 tokens beyond" in reward.explanation
    many = replace(RESULT, counts=Counts(malformed_calls=100))
    assert shaped(SOLVED, many, Shaping(malformed_call=0.1)).value == 0.5


def test_a_turn_may_cost_its_own_tokens():
    reward = shaped(SOLVED, RESULT, Shaping(turn_malformed=0.25, turn_error=0.5))
    assert reward == Reward(1.0, (-0.75, 0.0))
