"""Tools in an endpoint's own protocol."""

import pytest

from atropos_agent.formats.native import Native, read_native


def message(*arguments, **more):
    calls = [{"id": None, "type": "function", "function": {"name": "add", "arguments": text}} for text in arguments]
    return {"role": "assistant", "content": "", "tool_calls": calls, "raw": ["as it came"], **more}


def test_calls_are_read_and_those_without_an_id_get_one():
    raw_message = message('{"a": 1}', '{"a": 2}', reasoning="hm")
    reply = read_native(raw_message, 5)
    assert [(call.id, dict(call.arguments)) for call in reply.calls] == [("call_5", {"a": 1}), ("call_6", {"a": 2})]
    assert not reply.problems
    assert raw_message["raw"] == ["as it came"]
    assert [call["id"] for call in raw_message["tool_calls"]] == ["call_5", "call_6"]


@pytest.mark.parametrize("text", ["", "{", "[1]", "3", "[" * 100_000])
def test_arguments_that_are_no_object_are_the_models_mistake(text):
    raw_message = message('{"a": 1}', text)
    reply = read_native(raw_message, 0)
    assert [dict(call.arguments) for call in reply.calls] == [{"a": 1}]
    assert "no JSON object" in reply.problems[0]
    assert len(raw_message["tool_calls"]) == 1, "no result can follow the other one"
    assert "raw" not in raw_message
    alone = message(text)
    assert not read_native(alone, 0).calls
    assert "tool_calls" not in alone
    assert alone["content"], "an endpoint refuses an empty message"


def test_nothing_is_written_into_the_prompt():
    assert not Native().instructions([{"function": {"name": "add"}}])
    assert Native().parse("add(1)").content == "add(1)"
