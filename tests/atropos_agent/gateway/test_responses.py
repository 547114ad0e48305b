"""Responses."""

import json

from agents import AGENTS, opened
from native import DONE, Said, asks

from atropos_agent.gateway.asked import Told, ToldCall
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
    asked = Responses().read({"input": ITEMS, "instructions": "Be good."})
    assert list(asked.messages) == [
        Told("system", "Be good."),
        Told("user", "go"),
        Told("assistant", "A.", (ToldCall("c", "say", "{}"),), "hm", handle=0),
        Told("tool", "x", call_id="c"),
        Told("assistant", "B.", handle=1),
        Told("assistant", "C.", handle=2),
    ]


async def test_tools_in_a_space_of_names_and_tools_that_take_text(fitted):
    inside = {"type": "function", "name": "say", "parameters": {"type": "object", "properties": {}}}
    tools = [{"type": "namespace", "name": "fs", "tools": [inside]}, {"type": "custom", "name": "patch"}]
    calls = Said((("fs__say", {"text": "one"}), ("patch", {"input": "*** a"})))
    async with opened(fitted, [calls, DONE]) as (client, _):
        said = [{"role": "user", "content": "go"}]
        first = json.loads((await client.call("/v1/responses", {"input": said, "tools": tools}))[2])["output"]
        assert [(item["type"], item["name"], item.get("namespace")) for item in first] == [
            ("function_call", "say", "fs"),
            ("custom_tool_call", "patch", None),
        ]
        assert first[1]["input"] == "*** a"
        outputs = [
            {"type": "function_call_output", "call_id": first[0]["call_id"], "output": "ok"},
            {"type": "custom_tool_call_output", "call_id": first[1]["call_id"], "output": "ok"},
        ]
        await client.call("/v1/responses", {"input": [*said, *first, *outputs], "tools": tools})
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
    assert {told.handle for told in Responses().read({"input": items}).messages} == {None}
