"""What agents send back of our answers, in a canonical form."""

import pytest

from atropos_agent.gateway.echo import is_echo, pair_results, same_message
from atropos_agent.gateway.requests import Answer, HistoryCall, HistoryMessage, ReplyCall
from tools.base import ToolCall

SOUND = ReplyCall("c1", "say", '{"text":  "a"}', ToolCall("say", {"text": "a"}, "c1"))
BROKEN = ReplyCall("c2", "say", '{"text": "a', None)


def answer(*calls, content="Yes.", thinking="hm"):
    return Answer(3, thinking, content, calls, "stop", 1, 1)


@pytest.mark.parametrize(
    "message",
    [
        HistoryMessage("assistant", " Yes.\n", [HistoryCall("c1", "say", '{"text":"a"}')]),
        HistoryMessage("assistant", "Yes.", [HistoryCall("c1", "say", {"text": "a"})], thinking=" hm "),
        HistoryMessage("assistant", "Yes.", [HistoryCall("other", "say", {"text": "a"})]),
        HistoryMessage(
            "assistant", "Yes.", [HistoryCall("other", "say", {"text": "a"})], thinking="a summary", handle=3
        ),
        # Langroid adds the name of the tool.
        HistoryMessage("assistant", "Yes.", [HistoryCall("c1", "say", '{"text": "a", "request": "say"}')]),
        # Beside calls that are ours by their ids words and thinking are the agent's business.
        HistoryMessage("assistant", "", [HistoryCall("c1", "say", {"text": "a"})]),
        HistoryMessage("assistant", "<think>hm</think>Yes.", [HistoryCall("c1", "say", {"text": "a"})]),
        HistoryMessage("assistant", "Yes.", [HistoryCall("c1", "say", {"text": "a"})], thinking="other"),
    ],
)
def test_what_means_the_same_is_an_echo(message):
    assert is_echo(message, answer(SOUND))


@pytest.mark.parametrize("offered", [True, False])
def test_a_call_of_a_tool_that_the_agent_has_not_is_known_by_its_id(offered):
    ours = answer(ReplyCall("c1", "teleport", "{}", ToolCall("teleport", {}, "c1"), offered=offered))
    echo = HistoryMessage(
        "assistant", "Yes.", [HistoryCall("c1", "invalid", {"tool": "teleport", "error": "there is none"})]
    )
    assert is_echo(echo, ours) is not offered


@pytest.mark.parametrize(
    ("sampled", "echoed"),
    [
        (12345678901234567890, "12345678901234567000"),
        (10**400, "null"),
        ([{"a": 2**53 + 1}], '[{"a": 9007199254740992}]'),
        (1.0, "1"),
        ("cut \ud83d", '"cut ?"'),
    ],
)
def test_numbers_may_be_doubles_and_halves_of_surrogate_pairs_lost(sampled, echoed):
    ours = answer(ReplyCall("c1", "say", "{}", ToolCall("say", {"a": sampled}, "c1")))
    echo = HistoryMessage("assistant", "Yes.", [HistoryCall("c1", "say", f'{{"a": {echoed}}}')])
    assert is_echo(echo, ours) == (echoed != "null")


@pytest.mark.parametrize(
    "message",
    [
        HistoryMessage("user", "Yes.", [HistoryCall("c1", "say", {"text": "a"})]),
        HistoryMessage("assistant", "No.", [HistoryCall("other", "say", {"text": "a"})]),
        HistoryMessage("assistant", "Yes.", [HistoryCall("c1", "say", {"text": "b"})]),
        HistoryMessage("assistant", "Yes.", [HistoryCall("c1", "say", {"request": "say"})]),
        HistoryMessage("assistant", "Yes.", [HistoryCall("other", "say", {"text": "a", "request": "say"})]),
        HistoryMessage("assistant", "Yes.", [HistoryCall("c1", "shout", {"text": "a"})]),
        HistoryMessage("assistant", "Yes.", [HistoryCall("other", "say", {"text": "a"})], thinking="other"),
        HistoryMessage("assistant", "Yes."),
    ],
)
def test_what_was_changed_is_none(message):
    assert not is_echo(message, answer(SOUND))


def test_the_id_of_a_broken_call_tells_it_whatever_became_of_it():
    assert is_echo(HistoryMessage("assistant", "Yes.", [HistoryCall("c2", "invalid", {"error": "x"})]), answer(BROKEN))
    assert is_echo(HistoryMessage("assistant", 'Yes.\n{"text": "a'), answer(BROKEN))
    assert not is_echo(HistoryMessage("assistant", "Yes.", [HistoryCall("c1", "invalid", {})]), answer(BROKEN, SOUND))


def test_messages_are_compared_without_white_space_at_their_ends():
    assert same_message(HistoryMessage("tool", "a\n", call_id="c"), HistoryMessage("tool", "a", call_id="c"))
    assert not same_message(HistoryMessage("tool", "a", call_id="c"), HistoryMessage("tool", "a", call_id="d"))


def test_results_are_those_of_the_calls_by_the_ids_that_the_agent_sent():
    other = ReplyCall("c3", "say", "{}", ToolCall("say", {}, "c3"))
    results = [HistoryMessage("tool", text, call_id="own") for text in "ab"] + [HistoryMessage("user", "go")]
    for ours in ((SOUND, other), (SOUND, other, BROKEN)):  # a broken call is text in some protocols
        told = [HistoryCall("own", call.name, call.text) for call in (SOUND, other)]
        pairs = pair_results(results, HistoryMessage("assistant", "Yes.", told), answer(*ours))
        assert [call for _, call in pairs] == [SOUND, other, None]
    told = [HistoryCall(call.id, call.name, call.text) for call in (SOUND, BROKEN)]
    refused = HistoryMessage("tool", "no JSON", call_id="c2")
    ((_, call),) = pair_results([refused], HistoryMessage("assistant", "", told), answer(SOUND, BROKEN))
    assert call is BROKEN
