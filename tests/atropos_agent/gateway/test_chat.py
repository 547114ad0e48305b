"""Chat Completions."""

import pytest
from agents import AGENTS, ChatAgent, Told, assert_every_token_is_accounted_for, events, opened
from native import DONE, Said, asks

from atropos_agent.gateway.chat import Chat
from atropos_agent.gateway.requests import Fault, HistoryMessage, Refusal


async def test_usage_is_told_in_a_stream_where_it_is_asked_for(fitted):
    async with opened(fitted, [DONE, DONE]) as (client, engine):
        for include in (True, False):
            body = {"stream": True, "stream_options": {"include_usage": include}, "model": "mine"}
            messages = [{"role": "user", "content": f"go {include}"}]
            _, _, content = await client.call("/v1/chat/completions", {**body, "messages": messages})
            chunks = events(content)
            assert bool(chunks[-1].get("usage")) is include
            assert {chunk["model"] for chunk in chunks} == {"mine"}
            assert content.endswith(b"data: [DONE]\n\n")
    assert len(engine.exchanges) == 2


async def test_why_a_reply_ended(fitted):
    async with opened(fitted, [DONE, asks("one"), DONE]) as (client, _):
        reasons = []
        for number, limit in enumerate((None, None, 1)):
            agent = ChatAgent(client, max_tokens=limit)
            agent.user(f"go {number}")
            agent.read = lambda content: reasons.append(
                __import__("json").loads(content)["choices"][0]["finish_reason"]
            )
            await agent.ask(keep=False)
    assert reasons == ["stop", "tool_calls", "length"]


@pytest.mark.parametrize(("kind", "turns"), [("chat", [1, 2]), ("responses", [1, 1, 1])])
async def test_another_reply_follows_a_last_message_of_the_assistants(fitted, kind, turns):
    # Haystack's agent leaves out a broken call, and asks again behind the empty message. Responses can't tell this
    # message from the first part of the reply behind it.
    async with opened(fitted, [Said(spoiled="malformed"), asks("one"), DONE]) as (client, engine):
        agent = AGENTS[kind](client, stream=False, n=1)
        agent.user("go")
        await agent.ask(keep=False)
        agent.history.append({"role": "assistant", "content": ""})
        agent.results(await agent.ask())
        await agent.ask()
        result = await client.session.result()
    assert [row.turns for row in result.segments] == turns
    assert_every_token_is_accounted_for(result, engine)


@pytest.mark.parametrize("kind", ["messages", "gemini"])
async def test_a_protocol_that_would_continue_a_last_reply_refuses_one(fitted, kind):
    async with opened(fitted, [DONE, DONE]) as (client, _):
        agent = AGENTS[kind](client)
        agent.user("go")
        await agent.ask()
        with pytest.raises(Told, match="no reply is begun for the model"):
            await agent.ask()


def test_developers_are_the_system():
    request = Chat().read({"messages": [{"role": "developer", "content": "Be good."}]})
    assert list(request.messages) == [HistoryMessage("system", "Be good.")]


def test_names_of_speakers_are_not_shown_and_noted():
    said = {"role": "user", "content": "It is 42.", "name": "adder"}
    result = {"role": "tool", "tool_call_id": "a", "content": "42", "name": "calculator"}
    assert Chat().read({"messages": [said], "top_p": 1}).noted == ("messages.name", "top_p")
    assert Chat().read({"messages": [result, {"role": "user", "content": "Go on."}]}).noted == ()


def test_what_is_not_read_of_a_tool_is_noted():
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /x/"}}
    tools = [
        {"type": "function", "function": {"name": "say", "parameters": {}, "strict": True}},
        {"type": "custom", "custom": {"name": "patch", "format": grammar}},
    ]
    body = {"messages": [{"role": "user", "content": "go"}]}
    assert Chat().read({**body, "tools": tools}).noted == ("tools.format", "tools.strict")
    tools = [
        {"type": "function", "function": {"name": "say", "strict": False}},
        {"type": "custom", "custom": {"name": "patch", "format": {"type": "text"}}},
    ]
    assert Chat().read({**body, "tools": tools}).noted == ()


def test_a_budgets_end_has_the_code_that_clients_know():
    content = Chat().error(Refusal("prompt is too long", Fault.TOO_LONG))
    assert content["error"]["code"] == "context_length_exceeded"
    assert content["error"]["type"] == "invalid_request_error"
