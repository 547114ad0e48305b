"""Messages."""

import json

import pytest
from agents import AGENTS, opened
from native import DONE, Said, asks

from atropos_agent.gateway.messages import Messages
from atropos_agent.gateway.requests import Fault, HistoryMessage, Refusal


def test_a_message_is_told_in_parts_and_a_bill_is_left_out():
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2"},
        {"type": "text", "text": "Be good."},
    ]
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": "x", "cache_control": {"type": "ephemeral"}},
        {"type": "tool_result", "tool_use_id": "b", "is_error": True},
        {"type": "text", "text": "Go on."},
    ]
    request = Messages().read({"system": system, "messages": [{"role": "user", "content": results}]})
    assert list(request.messages) == [
        HistoryMessage("system", "Be good."),
        HistoryMessage("tool", "x", call_id="a"),
        HistoryMessage("tool", "", call_id="b"),
        HistoryMessage("user", "Go on."),
    ]
    assert request.noted == ("tool_result.is_error",)


def test_a_result_that_is_no_error_is_not_noted():
    result = {"type": "tool_result", "tool_use_id": "a", "content": "x", "is_error": False}
    assert Messages().read({"messages": [{"role": "user", "content": [result]}]}).noted == ()


def test_a_wish_for_one_call_at_a_time_is_noted():
    body = {"messages": [{"role": "user", "content": "go"}]}
    one = Messages().read({**body, "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}})
    assert (one.noted, one.forced) == (("tool_choice.disable_parallel_tool_use",), {})
    assert Messages().read({**body, "tool_choice": {"type": "auto", "disable_parallel_tool_use": False}}).noted == ()


def test_what_is_not_read_of_tools_and_results_is_noted():
    tool = {"name": "say", "input_schema": {}, "input_examples": [{}], "cache_control": {"type": "ephemeral"}}
    failed = {"type": "tool_result", "tool_use_id": "a", "content": "no such file", "is_error": True}
    body = {"messages": [{"role": "user", "content": [failed]}], "tools": [tool]}
    assert Messages().read(body).noted == ("tool_result.is_error", "tools.input_examples")


def test_the_marks_of_a_providers_cache_are_not_noted():
    # As inspect_ai sends it.
    mark = {"cache_control": {"type": "ephemeral"}}
    call = {"type": "tool_use", "id": "call_0", "name": "say", "input": {}, **mark}
    result = {"type": "tool_result", "tool_use_id": "call_0", "content": [{"type": "text", "text": "x"}]}
    body = {
        "max_tokens": 600,
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [{"type": "text", "text": "I go.", "citations": None}, call]},
            {"role": "user", "content": [{**result, "is_error": False}]},
        ],
        "model": "claude-sonnet-4-5",
        "system": [{"type": "text", "text": "Be good.", **mark}],
        "tool_choice": {"type": "auto"},
        "tools": [{"name": "say", "description": "Say it.", "input_schema": {}, **mark}],
        **mark,
    }
    assert Messages().read(body).noted == ()


async def test_a_thread_goes_on_with_the_history_and_tools_that_are_not_sent_again(fitted):
    async with opened(fitted, [asks("one"), DONE]) as (client, engine):
        agent = AGENTS["messages"](client, thread={"type": "create"})
        agent.user("go")
        reply = json.loads((await client.call(agent.path, agent.request()))[2])
        found = {"type": "tool_result", "tool_use_id": reply["content"][-1]["id"], "content": "x"}
        thread = {"type": "continue", "previous_message_id": reply["id"]}
        body = {"max_tokens": 50, "messages": [{"role": "user", "content": [found]}], "thread": thread}
        assert (await client.call(agent.path, body))[0] == 200
        wrong = {**thread, "previous_message_id": "msg_01"}
        assert (await client.call(agent.path, {**body, "thread": wrong}, raises=False))[0] == 400
        (row,) = (await client.session.result()).segments
    before, after = (tuple(one.prompt) for one in engine.exchanges)
    assert after[: len(before)] == before and row.turns == 2


async def test_why_a_reply_ended(fitted):
    replies = [DONE, asks("one"), DONE, Said(content="a b"), Said(spoiled="malformed")]
    async with opened(fitted, replies) as (client, _):
        bodies = []
        for number, more in enumerate(({}, {}, {"max_tokens": 1}, {"stop_sequences": ["b"]}, {})):
            agent = AGENTS["messages"](client, **more)
            agent.user(f"go {number}")
            bodies.append(json.loads((await client.call(agent.path, agent.request()))[2]))
    assert [one["stop_reason"] for one in bodies] == ["end_turn", "tool_use", "max_tokens", "stop_sequence", "end_turn"]
    assert bodies[3]["stop_sequence"] == "b"
    assert bodies[4]["content"][0]["type"] == "text"


@pytest.mark.parametrize("stream", [False, True])
async def test_thinking_is_sent_as_the_client_wants_it(fitted, stream):
    wishes = ({}, {"type": "disabled"}, {"type": "adaptive", "display": "omitted"})
    async with opened(fitted, [asks("one", thinking="hm", content="First."), DONE] * 3) as (client, _):
        told = []
        for wish in wishes:
            agent = AGENTS["messages"](client, stream=stream, **({"thinking": wish} if wish else {}))
            agent.user(f"go {wish}")
            reply = await agent.ask()
            told.append([block.get("thinking", block["type"]) for block in reply["content"]])
            agent.results(reply)
            await agent.ask()
        result = await client.session.result()
    assert told == [["hm", "text", "tool_use"], ["text", "tool_use"], ["", "text", "tool_use"]]
    assert [row.turns for row in result.segments] == [2, 2, 2]


async def test_a_signature_tells_the_answer(fitted):
    async with opened(fitted, [asks("one", thinking="hm"), DONE]) as (client, _):
        agent = AGENTS["messages"](client)
        agent.user("go")
        reply = await agent.ask()
        assert reply["content"][0] == {"type": "thinking", "thinking": "hm", "signature": "gw-0"}
        reply["content"][0]["thinking"] = ""
        agent.results(reply)
        await agent.ask()
        assert len((await client.session.result()).segments) == 1


def test_errors_are_anthropics():
    assert Messages().error(Refusal("x", Fault.OURS)) == {
        "type": "error",
        "error": {"type": "api_error", "message": "x"},
    }
    assert Messages().error(Refusal("x", Fault.TOO_LONG))["error"]["type"] == "invalid_request_error"
