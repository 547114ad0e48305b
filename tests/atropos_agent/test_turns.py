"""Agents that are written on turns: whatever they do, each sampled token is in one row, or counted by reason."""

import asyncio

import pytest
from worked import assert_every_token_is_accounted_for, call, loop, play

from atropos_agent import ledger
from atropos_agent.types import Branch, StopReason

# What an agent may do in every family


async def asks_once_more(turns):
    await loop(turns)
    turns.add("Are you sure?")
    await loop(turns)


async def talks_between_results(turns):
    reply = await turns.reply()
    await turns.execute(reply.calls)
    turns.add("Think of the time.")
    turns.add("And of the cost.")
    await loop(turns)


async def runs_no_call(turns):
    await turns.reply()
    turns.add("Don't call anything.")
    await loop(turns)


async def forks_and_drops(turns):
    reply = await turns.reply()
    await turns.execute(reply.calls)
    beside = turns.fork()
    await beside.reply()
    await loop(turns)


async def goes_on_in_a_fork(turns):
    await turns.execute((await turns.reply()).calls)
    await loop(turns.fork())


async def opens_another(turns):
    await turns.execute((await turns.reply()).calls)
    await loop(turns.open("Something else."))
    await loop(turns)


async def sums_up(turns):
    task = turns.messages
    await turns.execute((await turns.reply()).calls)
    summary = turns.fork(Branch.SUMMARY)
    summary.add("Sum it up.")
    said = await summary.reply()
    turns.restart([*task, {"role": "user", "content": said.content}])
    await loop(turns)


async def leaves_out(turns):
    await turns.execute((await turns.reply()).calls)
    beside = turns.fork()
    await beside.reply()
    beside.leave_out("not wanted")
    await loop(turns)


WAYS = {
    asks_once_more: (1, [call("say", text="one"), "done", call("say", text="two"), "sure"]),
    talks_between_results: (1, [call("say", text="one"), call("say", text="two"), "done"]),
    runs_no_call: (1, [call("crash"), "done"]),
    forks_and_drops: (2, [call("say", text="one"), call("say", text="beside"), call("say", text="two"), "done"]),
    goes_on_in_a_fork: (1, [call("say", text="one"), call("say", text="two"), "done"]),
    opens_another: (2, [call("say", text="one"), call("say", text="else"), "else done", "done"]),
    sums_up: (2, [call("say", text="one"), "I said one.", call("say", text="two"), "done"]),
    leaves_out: (1, [call("say", text="one"), "beside", call("say", text="two"), "done"]),
}
"""How many rows each makes where the template leaves history as it is, and what the model replies."""


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_whatever_an_agent_does_each_sampled_token_is_in_one_row_or_counted(any_tokenizer, template, way):
    thinks = "hm</think>" if template.opens_thinking else ""
    result, exchanges = await play(template, [thinks + text for text in WAYS[way][1]], way)
    assert len(exchanges) == len(WAYS[way][1])
    assert_every_token_is_accounted_for(result, exchanges)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_conversations_make_no_more_rows_than_they_must(smollm2, way):
    rows, texts = WAYS[way]
    result, _ = await play(smollm2, texts, way)
    assert len(result.segments) == rows
    assert result.stop_reason is StopReason.ANSWERED


async def test_a_conversation_alone_has_rows_of_its_own(smollm2):
    async def work(turns):
        await turns.execute((await turns.reply()).calls)
        beside = turns.fork()
        await loop(beside)
        (row,) = beside.rows()
        assert row.turns == 2
        await loop(turns)

    await play(smollm2, [call("say", text="one"), "beside", "done"], work)


async def test_the_model_no_longer_sees_what_stood_before_a_restart(smollm2):
    result, exchanges = await play(smollm2, WAYS[sums_up][1], sums_up)
    shown = smollm2.decode(exchanges[2].prompt)
    assert "I said one." in shown and call("say", text="one") not in shown
    assert shown.startswith(smollm2.decode(exchanges[0].prompt).split("Go.")[0]), "the system prompt is the same"
    assert [m["content"] for m in result.messages[1:3]] == ["Go.", "I said one."]
    assert [(row.branch, row.turns) for row in result.segments] == [("main", 2), ("main", 2)]


async def test_a_reply_is_typed(smollm2):
    async def work(turns):
        reply = await turns.reply()
        assert (reply.thinking, reply.content, reply.finish_reason) == ("hm", "First.", "stop")
        assert [one.arguments for one in reply.calls] == [{"text": "one"}]
        assert (list(reply.problems), reply.ended) == ([], None)
        assert [result.content for result in await turns.execute(reply.calls)] == ["one"]
        answer = await turns.reply()
        assert (answer.text, answer.ended, turns.ended) == ("done", StopReason.ANSWERED, StopReason.ANSWERED)

    await play(smollm2, ["<think>\nhm\n</think>\n\nFirst.\n" + call("say", text="one"), "done"], work)


@pytest.mark.parametrize("sampled", [[], ["one"], [call("say", text="one")]], ids=["first", "answer", "call"])
async def test_messages_after_a_reply_that_was_given_up_follow_those_before_it(any_tokenizer, template, sampled):
    thinks = "hm</think>" if template.opens_thinking else ""

    async def work(turns):
        for _ in sampled:
            await turns.execute((await turns.reply()).calls)
            turns.add("More.")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await turns.reply()
        beside = turns.fork()
        for one in (turns, beside):
            one.add("Be quick.")
            assert (await one.reply()).content == "done"

    async def at_once(turns):
        if not sampled:
            turns.add("Be quick.")
        for _ in sampled:
            await turns.execute((await turns.reply()).calls)
            turns.add("More.")
            turns.add("Be quick.")
        await turns.reply()

    texts = [thinks + text for text in sampled]
    result, exchanges = await play(template, [*texts, 0.05, *[f"{thinks}done"] * 2], work)
    assert_every_token_is_accounted_for(result, exchanges)
    _, expected = await play(template, [*texts, f"{thinks}done"], at_once)
    assert [one.prompt for one in exchanges] == [*(one.prompt for one in expected), expected[-1].prompt]


async def test_a_reply_that_is_being_read_is_taken_in_before_anything_is_written_behind_it(smollm2, monkeypatch):
    async def slowly(work, _):
        await asyncio.sleep(0.05)
        return work()

    async def work(turns):
        monkeypatch.setattr(ledger, "offload", slowly)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.03):
                await turns.reply()
        turns.add("Be quick.")
        await turns.reply()

    result, exchanges = await play(smollm2, ["one", "done"], work)
    assert_every_token_is_accounted_for(result, exchanges)
    assert len(result.segments) == 1


async def test_a_step_holds_what_was_said_before_it(smollm2):
    """The first one's messages are the result's."""

    async def work(turns):
        reply = await turns.reply()
        await turns.execute(reply.calls)
        turns.add("And now?")
        await turns.reply()
        beside = turns.fork()
        beside.add("Another way.")
        await beside.reply()
        await turns.open([{"role": "system", "content": "You count."}, {"role": "user", "content": "Count."}]).reply()

    result, _ = await play(smollm2, [call("say", text="one"), "two", "three", "four"], work)
    said = [[message["content"] for message in step.said] for step in result.steps]
    assert said == [[], ["And now?"], ["Another way."], ["You count.", "Count."]]


async def test_what_can_not_stand_there_is_refused_by_name(smollm2):
    async def work(turns):
        asking = asyncio.create_task(turns.reply())
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="fork it"):
            await turns.reply()
        await asking
        with pytest.raises(ValueError, match="the last message is the model's own"):
            await turns.reply()
        for role, said in (("assistant", "a message of role 'assistant'"), ("system", "another system prompt")):
            with pytest.raises(ValueError, match=f"{said} can't come after a reply"):
                turns.add({"role": role, "content": "Hm."})
        with pytest.raises(ValueError, match="at least one message"):
            await turns.open().reply()

    await play(smollm2, [0.01, "one"], work)


async def test_a_reply_that_is_cancelled_can_be_asked_for_again(smollm2):
    async def work(turns):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(turns.reply(), 0.05)
        await loop(turns)

    result, exchanges = await play(smollm2, [60.0, call("say", text="one"), "done"], work)
    assert result.counts.abandoned_requests == 1
    assert_every_token_is_accounted_for(result, exchanges)


async def test_an_agent_that_never_looks_whether_a_budget_is_spent_ends_with_it(smollm2):
    async def work(turns):
        while True:
            reply = await turns.reply()
            turns.add(f"Go on from {reply.content!r}.")

    result, exchanges = await play(smollm2, ["one", "two", "three"], work, max_steps=3)
    assert (result.stop_reason, len(exchanges)) == (StopReason.MAX_STEPS, 3)
    assert result.segments[0].turns == 3


async def test_an_agent_that_stops_by_itself_has_answered(smollm2):
    async def work(turns):
        reply = await turns.reply()
        turns.final = reply.calls[0].arguments["text"]

    result, _ = await play(smollm2, [call("say", text="one")], work)
    assert (result.stop_reason, result.success, result.final_response) == (StopReason.ANSWERED, True, "one")
