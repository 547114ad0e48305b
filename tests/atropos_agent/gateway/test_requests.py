"""What is asked and answered."""

import pytest

from atropos_agent.gateway.app import PROTOCOLS
from atropos_agent.gateway.requests import Answer, Fault, GatewayRequest, HistoryCall, Refusal, ReplyCall
from tools.base import ToolCall


@pytest.mark.parametrize(("fault", "status"), [(Fault.TOO_LONG, 400), (Fault.OURS, 500), (Fault.TOO_LARGE, 413)])
def test_a_fault_has_its_status(fault, status):
    assert fault.status == status


def test_a_refusal_names_its_field():
    refusal = Refusal("n: one", param="n")
    assert (refusal.fault, refusal.param, str(refusal)) == (Fault.INVALID, "n", "n: one")


def test_the_whole_of_an_answer_holds_its_broken_calls():
    calls = (ReplyCall("a", "say", "{}", ToolCall("say", {}, "a")), ReplyCall("b", "say", '{"text'))
    assert Answer(0, None, "First.", calls, "stop", 1, 1).whole == 'First.\n{"text'
    assert Answer(0, None, "", calls[:1], "stop", 1, 1).whole == ""


def test_tools_are_a_set():
    one, two = ({"type": "function", "function": {"name": name}} for name in "ab")
    both = GatewayRequest([], tools=[one, two])
    assert both.toolset == GatewayRequest([], tools=[two, one]).toolset != GatewayRequest([], tools=[one]).toolset
    assert both.toolset is both.toolset, "it is made once: agents may send a megabyte of them with each request"


def test_arguments_that_are_no_json_are_text():
    assert HistoryCall("c", "say", "").meant == {}
    assert HistoryCall("c", "say", "{x").meant == "{x"
    assert HistoryCall("c", "say", "[" * 100_000).meant == "[" * 100_000
    call = HistoryCall("c", "say", '{"a": 1}')
    assert call.meant is call.meant


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=lambda one: type(one).__name__)
def test_the_name_of_a_model_is_cut(protocol):
    """A stream repeats it for each call: 200 calls made 200 MB of a megabyte."""
    asked = {"messages": [{"role": "user", "content": "x"}], "input": "x", "contents": [{"parts": [{"text": "x"}]}]}
    assert protocol.read(asked | {"model": "m" * 5000}).model == "m" * 1000


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=lambda one: type(one).__name__)
def test_what_is_kept_of_a_requests_settings_has_a_size(protocol):
    """A body of 17 MB may have a million settings, and a rollout has many turns; a refusal is told and logged."""
    many = {f"x{number}": 1 for number in range(1000)}
    asked = {"messages": [{"role": "user", "content": "x"}], "input": "x", "contents": [{"parts": [{"text": "x"}]}]}
    long = {"tool_choice": {"type": "x" * 5000}, "response_format": {"type": "x" * 5000}} | many
    request = protocol.read(asked | long | {"generationConfig": many | {"responseMimeType": "x" * 5000}})
    assert len(request.noted) == 100
    assert request.forced and all(len(value) == 60 for value in request.forced.values())


def test_a_long_choice_of_a_tool_is_cut():
    asked = {"messages": [{"role": "user", "content": "x"}], "tool_choice": "x" * 5000}
    assert PROTOCOLS["chat/completions"].read(asked).forced == {"tool_choice": "x" * 60}
