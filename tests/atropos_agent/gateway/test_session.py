"""One rollout: budgets, failures, its end, and the journal."""

import asyncio

import pytest
from agents import AGENTS, ChatAgent, Told, assert_every_token_is_accounted_for, opened
from native import DONE, asks
from native_families import one_system_message

from atropos_agent.engines.errors import ContextOverflow
from atropos_agent.gateway.requests import GatewayRequest, HistoryMessage
from atropos_agent.types import EngineError, StopReason, Unanswered


@pytest.mark.parametrize("kind", AGENTS)
@pytest.mark.parametrize(
    ("reason", "options"),
    [
        (StopReason.MAX_STEPS, {"max_steps": 1}),
        (StopReason.TIME, {"max_seconds": 0.05}),
        (StopReason.MAX_TOKENS, {"max_total_tokens": 1}),
    ],
)
async def test_a_budget_ends_with_the_error_at_which_agents_stop(fitted, kind, reason, options):
    async with opened(fitted, [asks("one")] * 2, **options) as (client, _):
        agent = AGENTS[kind](client)
        agent.user("go")
        with pytest.raises(Told) as caught:
            agent.results(await agent.ask())
            await asyncio.sleep(0.06)
            await agent.ask()
        result = await client.session.result()
    assert caught.value.status == 400
    assert "prompt is too long" in caught.value.body["error"]["message"]
    assert (result.stop_reason, result.success) == (reason, False)


async def test_a_full_context_window_is_a_budget(fitted):
    async with opened(fitted, [asks("one")]) as (client, engine):
        agent = ChatAgent(client)
        agent.user("go")
        agent.results(await agent.ask())
        engine.failing = ContextOverflow("the window is full")
        with pytest.raises(Told, match="context_length_exceeded"):
            await agent.ask()
        result = await client.session.result()
    assert result.stop_reason is StopReason.MAX_TOKENS
    assert_every_token_is_accounted_for(result, engine)


async def test_a_conversation_that_is_too_long_ends_nothing_where_the_agent_goes_on_in_another(fitted):
    async with opened(fitted, [asks("one"), DONE, DONE], max_total_tokens=1500) as (client, engine):
        agent = ChatAgent(client)
        agent.user("go")
        agent.results(await agent.ask(), "word " * 1500)
        with pytest.raises(Told, match="prompt is too long"):
            await agent.ask()
        assert client.session.ended_by is StopReason.MAX_TOKENS
        title = ChatAgent(client, tools=())
        title.user("a title")
        await title.ask()
        assert client.session.ended_by is StopReason.MAX_TOKENS, "a title is no work"
        agent.history = agent.history[:1]
        agent.user("go on from a summary")
        await agent.ask()
        result = await client.session.result()
    assert (result.stop_reason, result.success) == (StopReason.ANSWERED, True)
    assert_every_token_is_accounted_for(result, engine)


async def test_a_failing_engine_is_no_result(fitted):
    async with opened(fitted, [asks("one")]) as (client, engine):
        agent = ChatAgent(client)
        agent.user("go")
        agent.results(await agent.ask())
        engine.failing = EngineError("it is gone")
        for _ in range(2):
            with pytest.raises(Told, match="it is gone") as caught:
                await agent.ask()
        assert caught.value.status == 500
        engine.failing = None
        with pytest.raises(Told, match="it is gone"):
            await agent.ask()
        with pytest.raises(EngineError) as failed:
            await client.session.result()
    partial = failed.value.partial
    assert (len(partial.segments), partial.stop_reason) == (1, None)
    assert_every_token_is_accounted_for(partial, engine)


async def test_a_rollout_that_has_ended_answers_no_more(fitted):
    async with opened(fitted, [DONE]) as (client, engine):
        await client.session.result()
        agent = ChatAgent(client)
        agent.user("go")
        with pytest.raises(Told, match="ended"):
            await agent.ask()
    assert not engine.options


async def test_what_is_sampled_when_a_rollout_ends_is_abandoned_and_counted(fitted):
    async with opened(fitted, [DONE]) as (client, engine):
        engine.gate.clear()
        agent = ChatAgent(client)
        agent.user("go")
        asking = asyncio.create_task(agent.ask())
        for _ in range(9):
            await asyncio.sleep(0)
        assert engine.options
        result = await client.session.result()
        with pytest.raises(Told, match="ended"):
            await asking
    assert (result.counts.abandoned_requests, result.segments) == (1, ())


async def test_an_agents_settings_are_not_followed_but_its_limit_is(fitted):
    async with opened(fitted, [DONE, DONE], temperature=0.7, max_tokens=50) as (client, engine):
        for wanted in (10, 500):
            agent = ChatAgent(client, temperature=0.0, max_tokens=wanted)
            agent.user(f"go {wanted}")
            await agent.ask()
        result = await client.session.result()
    assert [one["max_tokens"] for one in engine.options] == [10, 50]
    assert {one["temperature"] for one in engine.options} == {0.7}
    assert result.metadata["gateway"]["not_followed"] == {"temperature": 2}


async def test_results_and_calls_are_told_of_each_turn(fitted):
    async with opened(fitted, [asks("one"), DONE]) as (client, _):
        agent = ChatAgent(client)
        agent.user("go")
        agent.results(await agent.ask(), "it is one")
        await agent.ask()
        result = await client.session.result()
    assert [call.name for call in result.steps[0].calls] == ["say"]
    assert [one.content for one in result.steps[0].results] == ["it is one"]
    assert (result.final_response, result.stop_reason) == ("done", StopReason.ANSWERED)
    assert [message["role"] for message in result.messages] == ["system", "user", "assistant", "user", "assistant"]


PICTURE = [{"type": "image_url", "image_url": {"url": "http://example.com/x.png"}}]


@pytest.mark.parametrize("kind", AGENTS)
async def test_a_rollout_whose_first_request_is_refused_is_a_failure_that_names_the_refusal(fitted, kind):
    async with opened(fitted) as (client, _):
        agent = AGENTS[kind](client)
        with pytest.raises(Told) as refused:
            await client.call(agent.path, agent.request() | {"tools": [{"type": "web_search"}]})
        assert refused.value.status == 400
        with pytest.raises(Unanswered, match=r"what the agent asked first was refused: tools\[0\]"):
            await client.session.result()


async def test_what_is_refused_beside_or_behind_a_reply_is_the_agents_own_business(fitted):
    async with opened(fitted, [DONE]) as (client, _):
        agent = ChatAgent(client)
        agent.user(PICTURE)
        with pytest.raises(Told, match="can't be shown"):
            await agent.ask()
        agent.history.pop()
        agent.user("go")
        await agent.ask()
        agent.user(PICTURE)
        with pytest.raises(Told, match="can't be shown"):
            await agent.ask()
        assert (await client.session.result()).success


async def test_two_system_messages_are_one_where_the_template_takes_one(smollm2_tokenizer):
    fitted = one_system_message(smollm2_tokenizer)
    for kind in AGENTS.keys() - {"gemini"}:  # which has one place for them
        async with opened(fitted, [asks("one"), DONE]) as (client, engine):
            agent = AGENTS[kind](client, system="The instructions.")
            agent.history.append({"role": "system", "content": "What the developer says."})
            agent.user("go")
            agent.results(await agent.ask())
            await agent.ask()
            result = await client.session.result()
        prompt = fitted.template.decode(engine.exchanges[0].prompt)
        assert prompt.index("The instructions.\n\nWhat the developer says.") < prompt.index("go<|im_end|>")
        assert (len(result.segments), result.drift) == (1, None)
        assert_every_token_is_accounted_for(result, engine)


@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize("kind", AGENTS)
async def test_a_reply_sampled_while_the_session_closes_is_counted(fitted, kind, steps):
    """Agents leave while the title that they asked for is sampled. steps: of the event loop until the close."""
    async with opened(fitted, [DONE, DONE]) as (client, engine):
        agent, title = AGENTS[kind](client), AGENTS[kind](client, tools=())
        agent.user("go")
        await agent.ask()
        engine.gate.clear()
        title.user("a title")
        asking = asyncio.create_task(title.ask())
        for _ in range(20):
            await asyncio.sleep(0)
        assert client.session.working
        engine.gate.set()
        for _ in range(steps):
            await asyncio.sleep(0)
        result = await client.session.result()
        await asyncio.gather(asking, return_exceptions=True)
    assert not client.session.working
    assert_every_token_is_accounted_for(result, engine)


async def test_a_reply_that_waits_to_be_read_while_the_session_closes_is_counted(fitted):
    async with opened(fitted, [DONE]) as (client, engine):
        agent = ChatAgent(client)
        agent.user("go")
        async with client.session._reading:
            asking = asyncio.create_task(agent.ask())
            for _ in range(20):
                await asyncio.sleep(0)
            assert engine.exchanges
            closing = asyncio.create_task(client.session.result())
            await asyncio.sleep(0)
        result = await closing
        await asyncio.gather(asking, return_exceptions=True)
    assert_every_token_is_accounted_for(result, engine)


async def test_a_reply_counts_as_one_turn_at_the_moment_it_is_there(fitted):
    async with opened(fitted, [DONE, DONE], max_steps=2) as (client, _):
        first = client.session.ask(GatewayRequest([HistoryMessage("user", "go")]))
        for _ in range(1000):
            if first.sampled is not None:
                break
            await asyncio.sleep(0)
        second = client.session.ask(GatewayRequest([HistoryMessage("user", "a title")]))
        await second.work
        assert client.session.ended_by is None
