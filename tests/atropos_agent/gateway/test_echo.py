"""What agents send back of our answers, in a canonical form."""

import pytest

from atropos_agent.gateway.asked import Answer, SaidCall, Told, ToldCall
from atropos_agent.gateway.echo import arguments_of, echoes, same_message, same_tools
from tools.base import ToolCall

SOUND = SaidCall("c1", "say", '{"text":  "a"}', ToolCall("say", {"text": "a"}, "c1"))
BROKEN = SaidCall("c2", "say", '{"text": "a', None)


def answer(*calls, content="Yes.", thinking="hm"):
    return Answer(3, thinking, content, calls, "stop", 1, 1)


@pytest.mark.parametrize(
    "told",
    [
        Told("assistant", " Yes.\n", [ToldCall("c1", "say", '{"text":"a"}')]),
        Told("assistant", "Yes.", [ToldCall("c1", "say", {"text": "a"})], thinking=" hm "),
        Told("assistant", "Yes.", [ToldCall("other", "say", {"text": "a"})]),
        Told("assistant", "Yes.", [ToldCall("other", "say", {"text": "a"})], thinking="a summary", handle=3),
        # Beside calls that are ours by their ids words and thinking are the agent's business.
        Told("assistant", "", [ToldCall("c1", "say", {"text": "a"})]),
        Told("assistant", "<think>hm</think>Yes.", [ToldCall("c1", "say", {"text": "a"})]),
        Told("assistant", "Yes.", [ToldCall("c1", "say", {"text": "a"})], thinking="other"),
    ],
)
def test_what_means_the_same_is_an_echo(told):
    assert echoes(told, answer(SOUND))


@pytest.mark.parametrize("offered", [True, False])
def test_a_call_of_a_tool_that_the_agent_has_not_is_known_by_its_id(offered):
    ours = answer(SaidCall("c1", "teleport", "{}", ToolCall("teleport", {}, "c1"), offered=offered))
    echo = Told("assistant", "Yes.", [ToldCall("c1", "invalid", {"tool": "teleport", "error": "there is none"})])
    assert echoes(echo, ours) is not offered


@pytest.mark.parametrize(
    ("sampled", "told"),
    [
        (12345678901234567890, "12345678901234567000"),
        (10**400, "null"),
        ([{"a": 2**53 + 1}], '[{"a": 9007199254740992}]'),
        (1.0, "1"),
        ("cut \ud83d", '"cut ?"'),
    ],
)
def test_numbers_may_be_doubles_and_halves_of_surrogate_pairs_lost(sampled, told):
    ours = answer(SaidCall("c1", "say", "{}", ToolCall("say", {"a": sampled}, "c1")))
    echo = Told("assistant", "Yes.", [ToldCall("c1", "say", f'{{"a": {told}}}')])
    assert echoes(echo, ours) == (told != "null")


@pytest.mark.parametrize(
    "told",
    [
        Told("user", "Yes.", [ToldCall("c1", "say", {"text": "a"})]),
        Told("assistant", "No.", [ToldCall("other", "say", {"text": "a"})]),
        Told("assistant", "Yes.", [ToldCall("c1", "say", {"text": "b"})]),
        Told("assistant", "Yes.", [ToldCall("c1", "shout", {"text": "a"})]),
        Told("assistant", "Yes.", [ToldCall("other", "say", {"text": "a"})], thinking="other"),
        Told("assistant", "Yes."),
    ],
)
def test_what_was_changed_is_none(told):
    assert not echoes(told, answer(SOUND))


def test_the_id_of_a_broken_call_tells_it_whatever_became_of_it():
    assert echoes(Told("assistant", "Yes.", [ToldCall("c2", "invalid", {"error": "x"})]), answer(BROKEN))
    assert echoes(Told("assistant", 'Yes.\n{"text": "a'), answer(BROKEN))
    assert not echoes(Told("assistant", "Yes.", [ToldCall("c1", "invalid", {})]), answer(BROKEN, SOUND))


def test_messages_are_compared_without_white_space_at_their_ends():
    assert same_message(Told("tool", "a\n", call_id="c"), Told("tool", "a", call_id="c"))
    assert not same_message(Told("tool", "a", call_id="c"), Told("tool", "a", call_id="d"))


def test_tools_are_a_set():
    one, two = ({"type": "function", "function": {"name": name}} for name in "ab")
    assert same_tools([one, two], [two, one])
    assert not same_tools([one], [one, two])


def test_arguments_that_are_no_json_are_text():
    assert arguments_of(ToldCall("c", "say", "")) == {}
    assert arguments_of(ToldCall("c", "say", "{x")) == "{x"
    assert arguments_of(ToldCall("c", "say", "[" * 100_000)) == "[" * 100_000
