"""Responses."""

import json

import pytest
from agents import AGENTS, assert_every_token_is_accounted_for, opened
from agents import Told as Refused
from native import DONE, Said, asks

from atropos_agent.gateway.requests import HistoryCall, HistoryMessage, Refusal
from atropos_agent.gateway.responses import Responses

ITEMS = [
    {"role": "user", "content": "go"},
    {"type": "reasoning", "id": "rs_gw_0", "summary": [{"type": "summary_text", "text": "hm"}], "content": []},
    {"type": "message", "id": "msg_gw_0", "role": "assistant", "content": [{"type": "output_text", "text": "A."}]},
    {"type": "function_call", "id": "fc_gw_0_0", "call_id": "c", "name": "say", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "x"}]},
    {"type": "message", "id": "msg_gw_1", "role": "assistant", "content": "B."},
    {"type": "message", "id": "msg_gw_2", "role": "assistant", "content": "C."},
]


def test_items_of_one_answer_are_one_reply():
    request = Responses().read({"input": ITEMS, "instructions": "Be good."})
    assert list(request.messages) == [
        HistoryMessage("system", "Be good."),
        HistoryMessage("user", "go"),
        HistoryMessage("assistant", "A.", (HistoryCall("c", "say", "{}"),), "hm", handle=0),
        HistoryMessage("tool", "x", call_id="c"),
        HistoryMessage("assistant", "B.", handle=1),
        HistoryMessage("assistant", "C.", handle=2),
    ]


async def test_tools_in_a_space_of_names_and_tools_that_take_text(fitted):
    inside = {"type": "function", "name": "say", "parameters": {"type": "object", "properties": {}}}
    tools = [{"type": "namespace", "name": "fs", "tools": [inside]}, {"type": "custom", "name": "patch"}]
    calls = Said((("fs__say", {"text": "one"}), ("patch", {"input": "*** a"})))
    async with opened(fitted, [calls, DONE]) as (client, _):
        opening = [{"role": "user", "content": "go"}]
        first = json.loads((await client.call("/v1/responses", {"input": opening, "tools": tools}))[2])["output"]
        assert [(item["type"], item["name"], item.get("namespace")) for item in first] == [
            ("function_call", "say", "fs"),
            ("custom_tool_call", "patch", None),
        ]
        assert first[1]["input"] == "*** a"
        outputs = [
            {"type": "function_call_output", "call_id": first[0]["call_id"], "output": "ok"},
            {"type": "custom_tool_call_output", "call_id": first[1]["call_id"], "output": "ok"},
        ]
        await client.call("/v1/responses", {"input": [*opening, *first, *outputs], "tools": tools})
        result = await client.session.result()
    assert len(result.segments) == 1


async def test_a_reply_that_was_cut_off_is_incomplete(fitted):
    async with opened(fitted, [asks("a long text")]) as (client, _):
        agent = AGENTS["responses"](client, max_output_tokens=3)
        agent.user("go")
        await agent.ask()
    assert agent.last["status"] == "incomplete"
    assert agent.last["incomplete_details"] == {"reason": "max_output_tokens"}


def test_ids_of_others_are_no_handles():
    items = [
        {"type": "message", "id": f"msg_{end}", "role": "assistant", "content": "A."} for end in ("x", "gw_x", "9")
    ]
    assert {message.handle for message in Responses().read({"input": items}).messages} == {None}


async def test_items_may_be_named_by_their_ids(fitted):
    replies = [asks("one", thinking="hm", content="First."), asks("two"), DONE]
    async with opened(fitted, replies) as (client, engine):
        agent = AGENTS["responses"](client)
        agent.user("go")
        for _ in range(3):
            reply = await agent.ask(keep=False)
            agent.keep([{"type": "item_reference", "id": item["id"]} for item in reply])
            agent.results(reply)
        result = await client.session.result()
    assert len(result.segments) == 1
    assert result.metadata["gateway"]["branches"] == {"main": 3}
    assert_every_token_is_accounted_for(result, engine)


@pytest.mark.parametrize("name", ["msg_gw_7", "fc_gw_0_3", "msg_of_others", 5, None])
async def test_an_item_that_is_not_there_is_refused_by_name(fitted, name):
    async with opened(fitted, [asks("one")]) as (client, _):
        agent = AGENTS["responses"](client)
        agent.user("go")
        agent.results(await agent.ask())
        for more in ({}, {"encrypted_content": "rs_gw_0"}):  # of thinking alone: no id
            agent.history[1] = {"type": "item_reference", "id": name, **more}
            with pytest.raises(Refused, match="item"):
                await agent.ask()


async def test_a_history_named_by_its_last_answer_goes_on_from_that(fitted):
    async with opened(fitted, [asks("one"), asks("two"), DONE]) as (client, engine):
        agent = AGENTS["responses"](client)
        agent.user("go")
        for _ in range(3):
            reply = await agent.ask(keep=False)
            agent.body["previous_response_id"] = agent.last["id"]
            agent.history = []
            agent.results(reply)
        agent.body["previous_response_id"] = "resp_of_others"
        with pytest.raises(Refused, match="previous_response_id"):
            await agent.ask()
        result = await client.session.result()
    assert len(result.segments) == 1
    assert_every_token_is_accounted_for(result, engine)


async def test_another_reply_follows_a_named_history_with_nothing_behind_its_answer(fitted):
    async with opened(fitted, [DONE, Said(content="again"), DONE]) as (client, engine):
        agent = AGENTS["responses"](client)
        agent.user("go")
        await agent.ask(keep=False)
        agent.body["previous_response_id"], agent.history = agent.last["id"], []
        await agent.ask()
        agent.user("more")
        agent.body["previous_response_id"], agent.history = agent.last["id"], agent.history[-1:]
        await agent.ask()
        result = await client.session.result()
    assert [row.turns for row in result.segments] == [1, 2]
    assert_every_token_is_accounted_for(result, engine)


def test_what_is_not_read_of_tools_and_of_the_texts_form_is_noted():
    inside = {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark"}}
    tools = [
        {"type": "function", "name": "say", "parameters": {}, "strict": True},
        {"type": "namespace", "name": "files", "tools": [inside]},
        {"type": "shell", "environment": {"type": "local"}, "tools": 5},
    ]
    body = {"input": "go", "tools": tools, "text": {"verbosity": "low", "format": {"type": "text"}}}
    assert Responses().read(body).noted == ("text.verbosity", "tools.format", "tools.strict")


def test_logprobs_are_refused_in_either_form():
    with pytest.raises(Refusal, match=r"include: 'message.output_text.logprobs': logprobs are the rollout's own"):
        Responses().read({"input": "go", "include": ["message.output_text.logprobs"]})
    with pytest.raises(Refusal, match="top_logprobs"):
        Responses().read({"input": "go", "top_logprobs": 5})


@pytest.mark.parametrize("space", [[], {}])
def test_a_space_of_names_that_is_no_text_is_refused_by_name(space):
    item = {"type": "function_call", "call_id": "c", "name": "say", "arguments": "{}", "namespace": space}
    with pytest.raises(Refusal, match=r"input\[0\].namespace"):
        Responses().read({"input": [item]})
