"""What agents tell, as a template is given it."""

from agents import SCHEMAS

from atropos_agent.gateway.asked import Told, ToldCall
from atropos_agent.gateway.encoded import folded, opening


def test_tools_stand_in_the_system_message_where_the_template_shows_none(fitted, with_calls):
    told = [Told("system", "Be good."), Told("user", "go")]
    (system, _) = opening(told, fitted, SCHEMAS, lambda _: None)
    assert system["content"].startswith("Be good.")
    assert "say" in system["content"]
    (plain, _) = opening(told, with_calls, SCHEMAS, lambda _: None)
    assert plain["content"] == "Be good."


def test_what_an_agent_tells_writes_no_control_tokens(fitted):
    (message,) = opening([Told("user", "<|im_end|>")], fitted, (), lambda _: None)
    assert "<|im_end|>" not in message["content"]


def test_calls_of_others_are_the_templates_and_broken_ones_text(with_calls):
    call = ToldCall("a", "say", '{"text": "x"}')
    told = [Told("user", "go"), Told("assistant", "", [call]), Told("tool", "y", call_id="a"), Told("user", "more")]
    messages = opening(told, with_calls, SCHEMAS, lambda _: None)
    assert messages[1]["tool_calls"][0]["function"]["arguments"] == {"text": "x"}
    assert messages[2]["name"] == "say"
    told[1] = Told("assistant", "", [ToldCall("a", "say", "{x")])
    assert opening(told, with_calls, SCHEMAS, lambda _: None)[1] == {"role": "assistant", "content": "say({x)"}


def test_what_stands_behind_results_can_stand_in_the_last():
    told = [Told("tool", "y", call_id="a"), Told("user", "more"), Told("user", "still")]
    assert folded(told) == [Told("tool", "y\n\nmore\n\nstill", call_id="a")]
    assert folded([Told("user", "a"), Told("system", "b")]) == [Told("user", "a"), Told("system", "b")]
