"""What values are worth."""

import asyncio
import threading

import pytest

from envs.functions.calling import FunctionTimeoutError
from envs.functions.judging import judge_reply, verdict_of
from envs.running.permanent import is_permanent
from envs.types import InfraError, Task, Verdict


class Result:
    final_response = "four"


class Half:
    def __float__(self):
        return 0.5


@pytest.mark.parametrize(("value", "reward"), [(1, 1.0), (True, 1.0), (0.25, 0.25), (Half(), 0.5)])
def test_numbers_are_rewards(value, reward):
    assert verdict_of("f", value).reward == reward


@pytest.mark.parametrize("value", [None, [1.0], {}, "good", "1", b"1", float("nan"), float("inf")])
def test_what_is_no_number_is_no_reward(value):
    with pytest.raises(InfraError, match="f returned") as caught:
        verdict_of("f", value)
    assert is_permanent(caught.value), "a run in which nothing else happens ends"


async def test_a_score_is_given_what_it_names_and_may_be_async():
    async def score(answer, task, more=3):
        return Verdict(float(answer == task.instruction), "compared")

    assert (await judge_reply(score, Task("a", "four"), Result(), 5.0)).reward == 1.0


async def test_a_score_that_waits_holds_up_nobody_and_is_given_up():
    done = threading.Event()
    slow = asyncio.create_task(judge_reply(lambda answer: done.wait(20), Task("a", "four"), Result(), 20.0))
    await asyncio.sleep(0)
    with pytest.raises(FunctionTimeoutError, match=r"was not over after 0\.05 s"):
        await judge_reply(lambda answer: asyncio.Event().wait(), Task("a", "four"), Result(), 0.05)
    done.set()
    assert (await slow).reward == 1.0
