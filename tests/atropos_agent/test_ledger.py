"""What a rollout keeps of all its conversations, however its agent breaks off."""

import asyncio

import pytest
from worked import assert_every_token_is_accounted_for, call, loop, play

from atropos_agent.types import AgentError, EngineError, StopReason
from tools.base import ToolRegistry


async def test_a_failure_of_ours_spoils_the_rollout_whoever_catches_it(smollm2):
    async def works_on(turns):
        for _ in range(2):
            try:
                await turns.reply()
            except AgentError:
                turns.add("Never mind.")

    async def tells_another(turns):
        try:
            await turns.reply()
        except AgentError as error:
            raise RuntimeError("something else") from error

    for work in (works_on, tells_another):
        with pytest.raises(EngineError, match="on fire"):
            await play(smollm2, [EngineError("on fire"), "fine"], work)

    async def hides_a_crash(turns):
        reply = await turns.reply()
        try:
            await turns.execute(reply.calls)
        except OSError:
            turns.final = "fine"

    with pytest.raises(AgentError, match="disk on fire"):
        await play(smollm2, [call("crash")], hides_a_crash)


async def test_an_agent_that_raises_loses_no_token(smollm2):
    async def work(turns):
        await turns.execute((await turns.reply()).calls)
        await turns.fork().reply()
        raise KeyError("a mistake")

    with pytest.raises(AgentError, match="a mistake") as caught:
        await play(smollm2, [call("say", text="one"), "two"], work)
    assert_every_token_is_accounted_for(caught.value.partial, caught.value.exchanges)
    assert isinstance(caught.value.__cause__, KeyError)


async def test_what_nobody_waits_for_ends_with_the_rollout(smollm2):
    left = []

    async def work(turns):
        left.append(asyncio.create_task(turns.fork().reply()))
        await asyncio.sleep(0.01)
        await loop(turns)

    result, exchanges = await play(smollm2, [60.0, "done", "never"], work)
    assert left[0].cancelled()
    assert (result.counts.abandoned_requests, len(exchanges)) == (1, 1)
    assert_every_token_is_accounted_for(result, exchanges)


async def test_a_budget_is_of_the_whole_rollout(smollm2):
    async def work(turns):
        replies = await asyncio.gather(*(turns.fork().reply() for _ in range(5)))
        assert sum(reply.ended is StopReason.MAX_STEPS for reply in replies) == 2
        assert (await turns.reply()).ended is StopReason.MAX_STEPS

    result, exchanges = await play(smollm2, ["one", "two", "three"], work, max_steps=3)
    assert result.stop_reason is StopReason.MAX_STEPS
    assert_every_token_is_accounted_for(result, exchanges)


async def test_a_sub_agent_may_be_a_tool(smollm2):
    turns_of = []

    async def ask(question: str) -> str:
        """Ask somebody else."""
        other = turns_of[0].open(question)
        await loop(other)
        return other.final

    async def work(turns):
        turns_of.append(turns)
        await loop(turns)

    texts = [call("ask", question="What?"), "That.", "It is that."]
    result, exchanges = await play(smollm2, texts, work, tools=ToolRegistry([ask]))
    assert result.steps[0].results[0].content == "That."
    assert [row.branch for row in result.segments] == ["main", "sub-agent"]
    assert_every_token_is_accounted_for(result, exchanges)
