"""What all formats read alike: thinking, tags, strict JSON."""

import json

import pytest

from atropos_agent.formats.hermes import Hermes
from atropos_agent.formats.reading import DEEPEST, expect, named_call, read_arguments, read_json, skip_space

CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'


@pytest.mark.parametrize(
    ("text", "orderly"),
    [
        (CALL, True),
        (f"<think>hm</think>\nI look.\n{CALL}\n{CALL} \n", True),
        (f"{CALL} behind", False),
        (f"{CALL}<think>hm</think>", False),
        (f"words <think>hm</think>{CALL}", False),
        (f"<think>a</think><think>b</think>{CALL}", False),
        (f"{CALL}<tool_call>oops</tool_call>", False),
        ("no call", False),
    ],
)
def test_a_reply_is_orderly_where_a_template_could_have_written_it(text, orderly):
    assert Hermes().parse(text).orderly == orderly


def test_json_ends_where_its_value_ends_and_is_strict():
    assert read_json(' {"a": "}"} rest', 0) == ({"a": "}"}, 11)
    for text in ('{"a": 1, "a": 2}', '{"a": NaN}', '{"a": Infinity}', '{"a": -1e999}', "{'a': 1}", "", '{"a": "\n"}'):
        with pytest.raises(ValueError, match="JSON"):
            read_json(text, 0)
    with pytest.raises(ValueError, match="must be a JSON object"):
        read_arguments("[1]", 0)


def test_json_is_read_to_a_depth_that_everything_else_can_follow():
    def nested(levels):
        return '{"a": [' * (levels // 2) + "1" + "]}" * (levels // 2)

    assert read_json(nested(DEEPEST), 0)[1] == len(nested(DEEPEST))
    many = json.dumps([{}] * DEEPEST)
    assert read_json(many, 0)[1] == len(many), "what stands beside each other is not deep"
    for levels in (DEEPEST + 2, 100_000):
        with pytest.raises(ValueError, match="nested too deeply"):
            read_json(nested(levels), 0)


def test_a_call_has_its_arguments_under_one_key():
    assert named_call({"name": "f", "parameters": {"x": 1}}, "parameters", "arguments").arguments == {"x": 1}
    for value in ({"name": "f"}, {"name": "", "arguments": {}}, {"name": "f", "arguments": {}, "parameters": {}}, []):
        with pytest.raises(ValueError, match="call"):
            named_call(value, "parameters", "arguments")


def test_white_space_may_stand_before_a_tag():
    assert skip_space(" \t\n x", 0) == 4
    assert expect(" \n<a>b", 0, "<a>", "no a") == 5
    with pytest.raises(ValueError, match="no a"):
        expect("b", 0, "<a>", "no a")
