"""How a template takes calls: the shape of a message, and where what the model writes of it ends."""

import json

import pytest

from atropos_agent.formats.hermes import Hermes
from atropos_agent.formats.mistral import Mistral
from atropos_agent.tokens.calls import CallShape, CallsKind, learn, map_texts, results_of, text_after, texts_of
from atropos_agent.tokens.probes import mark, marks
from atropos_agent.types import Reply
from tools.base import ToolCall

REPLY = Reply("hm", "I look.", [ToolCall("look", {"at": "x"}, "call_0"), ToolCall("look", {}, "call_1")], ())


def test_thinking_stands_in_the_key_that_the_template_reads():
    assert CallShape(Hermes(), "reasoning_content").message(REPLY)["reasoning_content"] == "hm"
    assert CallShape(Hermes(), "content").message(REPLY)["content"] == "<think>\nhm\n</think>\n\nI look."
    assert CallShape(Hermes()).message(REPLY).keys() == {"role", "content", "tool_calls"}


def test_arguments_are_an_object_or_its_json():
    as_object, as_text = (
        CallShape(Hermes(), text_arguments=text).message(REPLY)["tool_calls"][0]["function"]["arguments"]
        for text in (False, True)
    )
    assert as_object == json.loads(as_text) == {"at": "x"}


@pytest.mark.parametrize("thinking", [None, "content", "reasoning"])
@pytest.mark.parametrize("text", [False, True])
def test_a_marked_message_keeps_names_ids_and_its_kind_and_ends_with_its_mark(thinking, text):
    shape = CallShape(Hermes(), thinking, text)
    message = shape.message(REPLY)
    marked = shape.mark_message(message, 400)
    assert shape.kind(marked) == shape.kind(message)
    assert [call["id"] for call in marked["tool_calls"]] == ["call_0", "call_1"]
    found = [one for part in texts_of(marked) for one in marks(part)]
    assert found[-1] == mark(400)
    assert len(set(found)) == len(found) == 3 + (thinking is not None)


def test_what_the_model_writes_behind_its_last_mark_is_the_formats():
    shape = CallShape(Hermes())
    marked = shape.mark_message(shape.message(REPLY), 7)
    assert shape.closing(marked, 7) == '"}}\n</tool_call>'
    listed = CallShape(Mistral())
    assert listed.closing(listed.mark_message(listed.message(REPLY), 7), 7) == '"}}]'


def test_a_closing_is_found_up_to_white_space():
    assert text_after(' " } }\n</a>\n<end>', '"}}</a>') == "\n<end>"
    assert text_after("<end>", '"}') is None


def test_kinds_are_told_apart_and_lose_their_thinking():
    shape = CallShape(Hermes(), "reasoning")
    kind = shape.kind(shape.message(REPLY), emptied=True)
    assert kind == CallsKind(shape, thought=True, content=True, several=True, emptied=True)
    assert kind.without_thinking() == CallsKind(shape, content=True, several=True)
    assert kind.as_template_kind() == CallsKind(shape, thought=True, content=True, several=True)
    assert len(results_of(kind.reply(3), 5)) == 2


def test_all_text_is_quoted_keys_too():
    assert map_texts({"a": ["b", 1, None, {"c": True}]}, str.upper) == {"A": ["B", 1, None, {"C": True}]}


class Takes:
    """A template that takes some kinds of replies."""

    keeps_thinking_in_content = True

    def __init__(self, takes):
        self.takes = takes


def test_a_shape_is_the_first_that_the_template_takes():
    found = learn(Takes(lambda kind: kind.shape.text_arguments and kind.shape.thinking in (None, "thinking")), Hermes())
    assert (found.thinking, found.text_arguments) == ("thinking", True)
    assert learn(Takes(lambda kind: not kind.thought), Hermes()).thinking is None
    assert learn(Takes(lambda kind: False), Hermes()) is None
