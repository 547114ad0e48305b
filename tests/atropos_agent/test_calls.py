"""Calls of a reply: what is run, and what the model is told."""

import time

import pytest
from worked import call, loop, play

from atropos_agent.types import StopReason


async def test_the_model_is_told_of_calls_that_were_not_run_and_of_results_in_its_own_order(smollm2):
    async def work(turns):
        first, second, third = (await turns.reply()).calls
        await turns.execute([third])
        await turns.execute([first])
        with pytest.raises(ValueError, match=r"holds no call .* that was not run yet"):
            await turns.execute([first])
        await turns.reply()
        with pytest.raises(ValueError, match="made no calls"):
            await turns.execute([second])

    texts = ["".join(call("say", text=text) for text in ("one", "two", "three")), "done"]
    result, _ = await play(smollm2, texts, work)
    content = result.messages[3]["content"]
    assert content.index("one") < content.index("This call was not run.") < content.index("three")
    assert [one.content for one in result.steps[0].results] == ["one", "three"]


async def test_thousands_of_calls_take_time_in_proportion(smollm2):
    async def work(turns):
        reply = await turns.reply()
        began = time.thread_time()
        assert len(await turns.execute(reply.calls)) == 2000
        assert time.thread_time() - began < 10

    await play(smollm2, [call("say", text="x") * 2000], work, max_tokens=100_000)


async def test_an_agent_goes_on_behind_a_submission(smollm2):
    async def work(turns):
        await loop(turns)
        assert (turns.ended, turns.final) == (StopReason.SUBMITTED, "42")
        turns.add("Are you sure?")
        await loop(turns)

    result, exchanges = await play(smollm2, [call("finish", answer="42") + call("crash"), "yes"], work)
    assert (result.stop_reason, result.final_response) == (StopReason.ANSWERED, "yes")
    shown = smollm2.decode(exchanges[1].prompt)
    assert shown.index("42\n</tool_response>") < shown.index("This call was not run.") < shown.index("Are you sure?")
