"""Chat Completions."""

from agents import ChatAgent, events, opened
from native import DONE, asks

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
