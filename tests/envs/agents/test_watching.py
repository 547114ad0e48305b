"""Whether an agent that asks a session has anything left to do."""

import asyncio

import pytest
from native_families import fitted_family

from atropos_agent.engines.scripted import ScriptedServer
from atropos_agent.gateway.bounds import TooLong
from atropos_agent.gateway.requests import GatewayRequest, HistoryCall, HistoryMessage, Refusal
from atropos_agent.types import AgentConfig, Unanswered
from envs.agents import watching
from envs.agents.watching import WatchedSession

TOOL = {"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {}}}}
CALL = '<tool_call>\n{"name": "run", "arguments": {}}\n</tool_call>'


class Clock:
    now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(watching, "time", clock)
    return clock


def session(smollm2_tokenizer, *replies, **budgets):
    fitted = fitted_family(smollm2_tokenizer, None, "smollm2")
    server = ScriptedServer(replies, smollm2_tokenizer)
    return WatchedSession(server, fitted.template, fitted, AgentConfig(**budgets))


def asked(text, tools=(TOOL,)):
    return GatewayRequest([HistoryMessage("user", text)], tools=tools)


async def answered(one, request):
    turn = one.ask(request)
    await turn.work
    turn.taken = True
    await asyncio.sleep(0)
    return turn


def after(turn, *more):
    """The history after a turn, with the results of its calls."""
    answer = turn.sampled.answer
    calls = [HistoryCall(call.id, call.name, call.text) for call in answer.calls]
    results = [HistoryMessage("tool", "fine", call_id=call.id) for call in calls]
    return GatewayRequest(
        [*turn.request.messages, HistoryMessage("assistant", answer.content, calls), *results, *more], tools=(TOOL,)
    )


async def test_it_rests_since_the_last_reply_that_asks_for_nothing(smollm2_tokenizer, clock):
    async with session(smollm2_tokenizer, CALL, "Done.") as one:
        assert (one.requests, one.last, one.idle_s()) == (0, None, 0.0)
        first = await answered(one, asked("a"))
        clock.now += 60
        assert (one.requests, one.idle_s()) == (1, 0.0), "its tool runs"
        await answered(one, after(first))
        clock.now += 7
        assert one.idle_s() == 7


async def test_one_that_works_by_text_has_begun_with_its_first_reply_and_rests_only_when_a_budget_is_over(
    smollm2_tokenizer, clock
):
    async with session(smollm2_tokenizer, "An edit.", "Another.", max_steps=2) as one:
        one.by_text = True
        await answered(one, asked("a", tools=()))
        second = await answered(one, asked("b", tools=()))
        clock.now += 60
        assert one.has_begun and one.last is second and not one.is_only_preparing
        assert one.idle_s() == 0.0, "no reply of text is known to be the last"
        with pytest.raises(Refusal):
            one.ask(asked("c", tools=()))
        clock.now += 3
        assert one.idle_s() == 3.0


async def test_it_does_not_rest_while_a_tool_runs_beside_a_title_or_a_sub_agent(smollm2_tokenizer, clock):
    async with session(smollm2_tokenizer, CALL, "A title", "The sub-agent is done.", "Done.") as one:
        main = await answered(one, asked("a"))
        await answered(one, asked("t", tools=()))
        await answered(one, asked("sub"))
        clock.now += 60
        assert one.idle_s() == 0.0
        await answered(one, after(main))
        clock.now += 1
        assert one.idle_s() == 1


async def test_calls_that_the_agent_has_left_hold_nothing_up(smollm2_tokenizer, clock):
    async with session(smollm2_tokenizer, CALL, "Fine.", CALL, CALL, "Done.") as one:
        await answered(one, asked("a"))
        await answered(one, asked("a"))
        clock.now += 5
        assert one.idle_s() == 5, "it asked the same again, and was answered"
        main = await answered(one, asked("b"))
        await answered(one, after(main))
        assert one.idle_s() == 0.0
        await answered(one, after(main, HistoryMessage("user", "That is no tool: go on.")))
        clock.now += 6
        assert one.idle_s() == 6, "it dropped the reply"


async def test_a_summary_before_does_not_end_the_wait_for_a_tool(smollm2_tokenizer, clock):
    async with session(smollm2_tokenizer, CALL, "A summary.", CALL) as one:
        main = await answered(one, asked("a"))
        told = after(main)
        await answered(one, GatewayRequest([*told.messages, HistoryMessage("user", "Sum it up.")]))
        await answered(one, told)
        clock.now += 60
        assert one.idle_s() == 0.0


async def test_a_call_that_nobody_took_is_not_run(smollm2_tokenizer, clock):
    async with session(smollm2_tokenizer, CALL) as one:
        turn = await answered(one, asked("a"))
        turn.taken = False
        clock.now += 3
        assert one.idle_s() == 3


async def test_a_title_is_no_answer(smollm2_tokenizer, clock):
    async with session(smollm2_tokenizer, "A title", CALL, "Another title") as one:
        await answered(one, asked("t", tools=()))
        main = await answered(one, asked("a"))
        await answered(one, asked("u", tools=()))
        assert one.last is main


async def test_it_rests_when_it_is_refused_however_often_it_asks(smollm2_tokenizer, clock):
    async with session(smollm2_tokenizer, CALL, max_steps=1) as one:
        await answered(one, asked("a"))
        for _ in range(3):
            with pytest.raises(Refusal):
                await answered(one, asked("b"))
            clock.now += 4
        assert one.idle_s() == 12


async def test_it_does_not_rest_where_it_goes_on_behind_a_prompt_that_was_too_long(smollm2_tokenizer, clock):
    async with session(smollm2_tokenizer, CALL, CALL, max_total_tokens=1500) as one:
        await answered(one, asked("a"))
        with pytest.raises(Refusal):
            await answered(one, asked("b " * 2000))
        clock.now += 4
        assert one.idle_s() == 4
        await answered(one, asked("a summary"))
        clock.now += 60
        assert one.idle_s() == 0.0, "its tool runs"
        assert one.ended_by is None


async def test_a_request_that_can_be_no_prompt_is_the_end_of_a_budget(smollm2_tokenizer, clock):
    async with session(smollm2_tokenizer, CALL, max_total_tokens=1500) as one:
        await answered(one, asked("a"))
        one.too_long(TooLong("a request of more than 5 bytes"), counting=False)
        clock.now += 3
        assert one.idle_s() == 3


async def test_a_title_that_was_answered_is_no_work_where_the_request_with_tools_was_refused(smollm2_tokenizer, clock):
    async with session(smollm2_tokenizer, "A title", CALL) as one:
        one.note_refusal(Refusal("tools[1].type: is run by a provider"), tools=True)
        clock.now += 3
        assert one.idle_s() == 3, "it may give up"
        await answered(one, asked("t", tools=()))
        with pytest.raises(Unanswered, match="run by a provider"):
            await one.result()


async def test_an_agent_that_asks_otherwise_behind_a_refusal_has_begun(smollm2_tokenizer, clock):
    async with session(smollm2_tokenizer, "Done.") as one:
        one.note_refusal(Refusal("response_format: can't be forced"), tools=True)
        await answered(one, asked("a"))
        assert (await one.result()).success
