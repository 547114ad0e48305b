"""Calls that look like Python's: Llama 4's lists, and LFM2's between their tags."""

import pytest
from format_cases import assert_read, assert_refused

from atropos_agent.formats.pythonic import Pythonic, write_list
from tools.base import ToolCall

LIST = """[f(a="x, )]", b=-1, c=[True, null], d={"e": 'f'}), g()]"""
READ = [{"a": "x, )]", "b": -1, "c": [True, None], "d": {"e": "f"}}, {}]


@pytest.mark.parametrize("text", [LIST, f"<|python_start|>{LIST}<|python_end|>"])
def test_a_list_of_calls_is_read(text):
    assert_read("pythonic", text, READ, "")


def test_lfm2_may_say_something_before_its_calls():
    assert_read("lfm2", f"I call.\n<|tool_call_start|>{LIST}<|tool_call_end|>", READ, "I call.")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[f("x")]', "name"),
        ("[f(a=x)]", "can't be read"),
        ("[f(a=1, a=2)]", "twice"),
        ("[f(a=1) g()]", "neither a comma nor ]"),
        ("[f(a=1", "neither a comma"),
        ("[f(a=1)] then", "nothing else"),
        ("[f(a=open('x'))]", "can't be read"),
    ],
)
def test_what_is_not_written_so_is_malformed(text, expected):
    assert_refused("pythonic", text, expected)


def test_code_and_lists_are_answers():
    for text in ("[1, 2]", "[x for x in y]", "Use [int(x) for x in y].", "See [f](a)."):
        assert not Pythonic().parse(text).problems


def test_names_that_can_not_stand_there_are_refused():
    with pytest.raises(ValueError, match="is no name"):
        write_list([ToolCall("f", {"a b": 1})])
