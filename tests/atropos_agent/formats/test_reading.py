"""What all formats read alike: thinking, tags, strict JSON."""

import json
import time

import pytest
from turns import one_of

from atropos_agent.fitted import FittedFormat
from atropos_agent.formats import FORMATS, load_format
from atropos_agent.formats.hermes import Hermes
from atropos_agent.formats.reading import (
    DEEPEST,
    MOST_MALFORMED,
    expect,
    named_call,
    read_arguments,
    read_json,
    skip_space,
)
from atropos_agent.gateway.answers import answer_of
from atropos_agent.gateway.requests import GatewayRequest
from atropos_agent.tokens.conversation import Completion
from tools.base import ToolCall

CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'


@pytest.mark.parametrize(
    ("text", "orderly"),
    [
        (CALL, True),
        (f"<think>hm</think>\nI look.\n{CALL}\n{CALL} \n", True),
        (f"{CALL} after", False),
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


@pytest.mark.parametrize("name", ["hermes", "gemma4", "pythonic"])
def test_a_number_of_too_many_digits_is_refused_in_our_words(name):
    text = load_format(name).write(ToolCall("f", {"a": 5})).replace("5", "9" * 5000)
    assert load_format(name).parse(text).problems == ("the call has a number too large for JSON",)
    whole = load_format(name).parse(text.replace("9" * 5000, "9" * 4000))
    assert whole.calls[0].arguments == {"a": int("9" * 4000)}


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


SAY = {
    "function": {"name": "say", "parameters": {"properties": {"text": {"type": "string"}, "n": {"type": "integer"}}}}
}
CUT = Completion((), (), "length")
LONG = 100_000
"""Characters of a hostile reply: where each of its parts has the rest looked at again, it takes minutes."""
PIECES = {
    "thoughts": "<think></think>",
    "objects": '{"name": ',
    "objects beside broken ones": '{"name": {"name": "x", "arguments": {}},',
    "lists": "[",
    "quotes": '"',
    "white space": " ",
    "lists of calls": "[say(text='",
    "messages": "<|channel|>analysis to=functions.say<|message|>[",
}


def hostile(name):
    """Parts of replies, which are repeated."""
    tool_format = load_format(name)
    call = tool_format.write(ToolCall("say", {"text": "one"}, tool_format.call_id(0, "say")))
    opening, closing = getattr(tool_format, "opening", "<|start|>"), getattr(tool_format, "closing", "<|end|>")
    tags = {f"opened, then {tag}": opening + tag for tag in (*tool_format.control, *getattr(tool_format, "inner", ()))}
    return (
        PIECES
        | tags
        | {
            "opened": opening,
            "closed": closing,
            "calls": call,
            "calls cut short": call[: call.rindex("one") + 1],
            "calls without their start": call[len(call) // 2 :],
            "opened in a string": f'{opening}["{opening}",',
            "arguments of another type": f"{opening}<function=say><parameter=n>",
            "values that end in vain": "</parameter>x</arg_value>x",
        }
    )


@pytest.mark.parametrize("closed", one_of([False, True]))
@pytest.mark.parametrize("name", FORMATS)
def test_a_reply_is_read_and_answered_in_time_proportional_to_its_length(name, closed):
    tool_format = load_format(name).with_tools([SAY])
    for what, piece in hostile(name).items():
        text = (piece * (LONG // len(piece) + 1))[:LONG]
        if closed:
            text += getattr(tool_format, "closing", "")
        started = time.process_time()
        reply = tool_format.parse(text)
        answer = answer_of(
            *(text, reply, CUT, GatewayRequest((), tools=[SAY]), FittedFormat.text(tool_format, None, "user")),
            **{"number": 0, "first_id": 0, "prompt_tokens": 1, "thinking_open": False},
        )
        assert len(answer.calls) >= len(reply.calls)
        assert time.process_time() - started < 5, what


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "harmony"])
def test_behind_many_malformed_calls_nothing_is_read(name):
    """How often the rest of a reply is looked at, and how much the model is told, is bounded."""
    tool_format = load_format(name)
    good = tool_format.opening + tool_format.write(ToolCall("say", {}, tool_format.call_id(0, "say")))
    reply = tool_format.parse(f"{tool_format.opening}oops " * 1000 + good)
    assert not reply.calls
    assert len(reply.problems) == MOST_MALFORMED + 1
    assert "was not read" in reply.problems[-1]


def test_json_is_read_in_parts_as_in_one():
    for value in ("x" * 5000, [1] * 9000, {"a": "\\" * 4095}, 10**4000, [0.5, "é" * 4090, True]):
        for space in ("", " " * 4094):
            text = space + json.dumps(value)
            assert read_json(f"{text} rest", 0) == (value, len(text))
            if not isinstance(value, int):
                with pytest.raises(ValueError, match="JSON"):
                    read_json(text[:-1], 0)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", 'I call {"name": "say", "arguments": {"text": "a"}}.'),
        ("plain", '```json\n{"name": "say", "arguments": {}}\n```'),
        ("mistral", '[{"name": "say", "arguments": {}}]'),
        ("mistral_args", 'say[ARGS]{"text": "a"}'),
        ("qwen_coder", "<function=say>\n<parameter=text>\na\n</parameter>\n</function>"),
        ("seed_oss", "<function=say>\n<parameter=text>a</parameter>\n</function>"),
        ("nemotron", '[{"name": "say", "arguments": {}}]</TOOLCALL>'),
        ("apriel", '[{"name": "say", "arguments": {}}]'),
        ("glm", "say\n<arg_key>text</arg_key>\n<arg_value>a</arg_value>"),
        ("deepseek_v3", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>say\n```json\n{}\n```<｜tool▁call▁end｜>"),
        ("deepseek_v31", "<｜tool▁call▁begin｜>say<｜tool▁sep｜>{}<｜tool▁call▁end｜>"),
        ("deepseek_v32", '<｜DSML｜invoke name="say">\n</｜DSML｜invoke>'),
        ("deepseek_v4", '<｜DSML｜function_calls><｜DSML｜invoke name="say">\n</｜DSML｜invoke>'),
        ("kimi", "<|tool_call_begin|>functions.say:0<|tool_call_argument_begin|>{}<|tool_call_end|>"),
        ("minimax", '<invoke name="say">\n</invoke>'),
        ("gemma4", 'call:say{text:<|"|>a<|"|>}'),
        ("lfm2", '[say(text="a")]<|tool_call_end|>'),
        ("pythonic", 'I call [say(text="a")]'),
        ("llama_json", 'I call {"name": "say", "parameters": {}}'),
        ("harmony", "commentary to=functions.say<|message|>{}"),
    ],
)
def test_a_call_without_the_tags_around_it_is_malformed_and_no_answer(name, text):
    for reply in (text, f"Well.\n{text}"):
        read = load_format(name).with_tools([SAY]).parse(reply)
        assert (len(read.calls), len(read.problems)) == (0, 1), reply


def test_json_that_is_no_call_is_an_answer():
    for text in ('{"name": "Ann", "age": 3}', '[{"name": "a"}]', '{"arguments": {}}', '{"name": "x", "arguments"'):
        assert not Hermes().parse(text).problems
