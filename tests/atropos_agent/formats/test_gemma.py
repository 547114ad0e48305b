"""Gemma 4's calls: names without quotes, text between tokens of its own."""

import pytest
from format_cases import assert_read

from atropos_agent.formats.gemma import Gemma4
from atropos_agent.types import Reply
from tools.base import ToolCall

CALL = "<|tool_call>call:f{{{}}}<tool_call|>"


def test_values_are_read_as_the_template_writes_them():
    given = 'a:<|"|>it, "so" }<|"|>,b:-1.5,c:true,d:null,e:[1,<|"|>x<|"|>],g:{h:{},<|"|>i j<|"|>:None}'
    arguments = {"a": 'it, "so" }', "b": -1.5, "c": True, "d": None, "e": [1, "x"], "g": {"h": {}, "i j": None}}
    assert_read("gemma4", f"I call.{CALL.format(given)}", [arguments], "I call.")


def test_thinking_stands_in_its_channel():
    written = Gemma4().turn(Reply("hm", "", [ToolCall("f", {"b": 1, "a": "x"})], ()))
    assert written == '<|channel>thought\nhm\n<channel|><|tool_call>call:f{a:<|"|>x<|"|>,b:1}<tool_call|>'
    reply = Gemma4().parse(written)
    assert (reply.thinking, reply.content, reply.calls[0].arguments) == ("hm", "", {"a": "x", "b": 1})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('a:<|"|>x', "not closed"),
        ("a:1,a:2", "twice"),
        ("a 1", "no : comes"),
        ("a:1 b:2", "neither a comma"),
        ("a:1,", "after the last"),
        ("a:word", "can't be read"),
        (":1", "name"),
        ("a:" + "[" * 200, "too deeply"),
    ],
)
def test_what_is_not_written_so_is_malformed(given, expected):
    reply = Gemma4().parse(CALL.format(given))
    assert not reply.calls
    assert expected in reply.problems[0]


def test_text_that_spells_its_quotes_can_not_be_written():
    with pytest.raises(ValueError, match="can't be written"):
        Gemma4().write(ToolCall("f", {"a": '<|"|>'}))
