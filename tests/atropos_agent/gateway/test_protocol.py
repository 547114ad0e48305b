"""What protocols have in common."""

from atropos_agent.gateway.protocol import event, noted


def test_an_event_has_a_name_where_it_needs_one():
    assert event({"a": 1}) == b'data: {"a":1}\n\n'
    assert event({"a": 1}, "x") == b'event: x\ndata: {"a":1}\n\n'


def test_settings_that_are_not_followed_are_noted_by_name():
    assert noted({"messages": [], "temperature": 0.5, "seed": None, "x": 1}, ["messages"]) == ("temperature", "x")


def test_unread_fields_of_tools_and_messages_are_noted_unless_they_ask_for_nothing():
    tools = [{"name": "a", "strict": True, "format": {"type": "text"}}, {"name": "b", "strict": False, "deferred": 1}]
    assert noted({"x": 1}, (), ("tools", tools, ("name",))) == ("tools.deferred", "tools.strict", "x")
    nothing = {"refusal": None, "annotations": [], "name": "", "cache_control": {"type": "ephemeral"}}
    assert noted({}, (), ("messages", [nothing], ())) == ()
    many = [{str(number): 1} for number in range(1000)]
    assert len(noted({}, (), ("tools", many, ()))) == 100


def test_settings_that_ask_for_nothing_else_are_not_noted():
    assert noted({"n": 1, "logprobs": False, "modalities": ["text"]}, ()) == ()
