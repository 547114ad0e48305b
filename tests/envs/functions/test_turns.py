"""Turns: hooks are told of them in order, and rewards find them."""

import asyncio

import pytest
from asking import ask

from envs.functions import Hooks, rollout
from envs.types import Failure, Outcome


class Told(Hooks):
    def __init__(self, fails=""):
        self.events, self.fails = [], fails

    def _note(self, name, *more):
        self.events.append((name, *more))
        if name == self.fails:
            raise LookupError("a mistake in a hook")

    async def rollout_started(self, task, llm, seat):
        self._note("rollout_started", task.id)

    async def turn_started(self, task, llm, prompt_tokens):
        self._note("turn_started", prompt_tokens > 0)

    async def turn_ended(self, task, llm, turn):
        llm.reward(1.0 + turn.number, turn.number)
        self._note("turn_ended", turn.number, turn.text, len(turn.ids) > 0)

    async def rollout_ended(self, task, llm, outcome):
        self._note("rollout_ended", type(outcome) is Outcome)


def works(hooks):
    async def works(task, llm):
        await ask(llm, "one", "two")
        return 1.0

    return rollout(tasks=["?"], hooks=[hooks])(works)


async def test_hooks_are_told_of_rollouts_and_turns_and_may_reward(attempted):
    hooks = Told()
    (saved,) = await attempted(works(hooks), says=lambda prompt: "four")
    turns = [event for event in hooks.events if event[0] == "turn_ended"]
    assert hooks.events[0] == ("rollout_started", "task-0") and hooks.events[-1] == ("rollout_ended", True)
    assert hooks.events.count(("turn_started", True)) == 2
    assert [number for _, number, _, _ in turns] == [0, 1]
    assert all(text.startswith("four") and ids for _, _, text, ids in turns)
    assert list(saved.reward.turn_advantages) == [1.0, 2.0]


@pytest.mark.parametrize("name", ["rollout_started", "turn_started", "turn_ended", "rollout_ended"])
async def test_what_a_hook_raises_is_our_failure(attempted, name):
    found = await attempted(works(Told(fails=name)), says=lambda prompt: "four")
    ((_, _, error),) = found.failed
    assert error.kind is Failure.ENVIRONMENT and "a mistake in a hook" in str(error)


async def test_a_rollout_that_failed_is_told_as_such(attempted):
    hooks = Told()

    async def fails(task, llm):
        raise KeyError("x")

    await attempted(rollout(tasks=["?"], hooks=[hooks])(fails))
    assert hooks.events == [("rollout_started", "task-0"), ("rollout_ended", False)]


async def test_replies_side_by_side_are_rewarded_by_what_the_client_has_of_them(attempted):
    from openai import AsyncOpenAI

    async def asks_twice(task, llm):
        async with AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key) as client:
            said = [[{"role": "user", "content": word}] for word in ("long", "short")]
            replies = await asyncio.gather(
                *(client.chat.completions.create(model=llm.model, messages=messages) for messages in said)
            )
        for reply in replies:
            llm.reward(float(len(reply.choices[0].message.content)), reply)
        return 1.0

    says = lambda prompt: "a longer reply" if "long" in prompt else "no"  # noqa: E731
    (saved,) = await attempted(asks_twice, says=says)
    rewards = dict(zip((step.content for step in saved.result.steps), saved.reward.turn_advantages, strict=True))
    assert rewards == {"a longer reply": 14.0, "no": 2.0}
    assert len(saved.result.segments) == 2, "each is a conversation of its own, and trained"
