"""Any tools, any arguments, in any order: what a format writes it reads back, and what is broken is no call."""

import keyword

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from atropos_agent.formats import FORMATS, load_format
from atropos_agent.types import Reply
from tools.base import ToolCall

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).filter(lambda name: not keyword.iskeyword(name))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    [
        *(
            "</tool_call>",
            "</think>",
            "<think>",
            "null",
            "true",
            "5",
            '"',
            "a\nb",
            "\n",
            "</parameter>",
            "</arg_value>",
        ),
        *("<｜tool▁call▁end｜>", "<|call|>", "]", "```", "; {", "[ARGS]", "漢字 👩‍👩‍👧", "<|tool_call_end|>"),
    ]
)
SCALARS = {
    "string": TEXT,
    "integer": st.integers(-(2**53), 2**53),
    "number": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
}
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def arguments(draw):
    """A parameter's schema, and a value of it."""
    kind = draw(st.sampled_from([*SCALARS, "enum", "list", "object", "optional", "nested"]))
    if kind in SCALARS:
        return {"type": kind}, draw(SCALARS[kind])
    if kind == "enum":
        values = draw(st.lists(TEXT, min_size=1, max_size=3, unique=True))
        return {"enum": values, "type": "string"}, draw(st.sampled_from(values))
    if kind == "list":
        of = draw(st.sampled_from(list(SCALARS)))
        return {"type": "array", "items": {"type": of}}, draw(st.lists(SCALARS[of], max_size=3))
    if kind == "optional":
        of = draw(st.sampled_from(["integer", "number", "boolean"]))
        return {"anyOf": [{"type": of}, {"type": "null"}]}, draw(st.none() | SCALARS[of])
    value = draw(st.dictionaries(TEXT, ANY, max_size=3))
    return ({"type": "object"} if kind == "object" else {"$ref": "#/$defs/Nested"}), value


@st.composite
def calls(draw):
    """Tools, and calls of them with some of their arguments, in any order."""
    tools = draw(st.dictionaries(NAMES, st.dictionaries(NAMES, arguments(), max_size=4), min_size=1, max_size=3))
    schemas = [
        {
            "type": "function",
            "function": {
                "name": name,
                "parameters": {
                    "type": "object",
                    "properties": {key: schema for key, (schema, _) in taken.items()},
                    "$defs": {"Nested": {"type": "object"}},
                },
            },
        }
        for name, taken in tools.items()
    ]
    made = []
    for name in draw(st.lists(st.sampled_from(list(tools)), min_size=1, max_size=3)):
        keys = draw(st.permutations(list(tools[name])))
        keys = keys[: draw(st.integers(0, len(keys)))]
        made.append((name, {key: tools[name][key][1] for key in keys}))
    return schemas, made


def written(tool_format, made):
    """The text of calls; None where the format can't write them."""
    named = [ToolCall(name, given, tool_format.call_id(n, name)) for n, (name, given) in enumerate(made)]
    try:
        return tool_format.turn(Reply(None, "", named, ()))
    except ValueError:
        return None


@pytest.mark.parametrize("name", FORMATS)
@given(calls())
def test_calls_are_read_back_in_order(name, drawn):
    schemas, made = drawn
    tool_format = load_format(name).with_tools(schemas)
    text = written(tool_format, made)
    assume(text is not None)
    reply = tool_format.parse(text)
    assert [(call.name, call.arguments) for call in reply.calls] == made
    assert not reply.problems
    assert reply.orderly
    assert [call.id for call in reply.calls] == [tool_format.call_id(n, one) for n, (one, _) in enumerate(made)]


@pytest.mark.parametrize("name", ["qwen_coder", "glm"])
@given(TEXT)
def test_what_can_not_be_written_spells_tags_or_could_be_read_as_another_type(name, text):
    properties = {"text": {"type": "string"}}
    tool_format = load_format(name).with_tools([{"function": {"name": "f", "parameters": {"properties": properties}}}])
    assert (written(tool_format, [("f", {"text": text})]) is None) <= ("<" in text)


@pytest.mark.parametrize("name", FORMATS)
@given(calls(), st.data())
def test_a_call_that_is_cut_short_is_never_run(name, drawn, data):
    schemas, made = drawn
    tool_format = load_format(name).with_tools(schemas)
    text = written(tool_format, made[:1])
    assume(text is not None)
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    reply = tool_format.parse(cut)
    # What was cut off may be white space or a closing word that ends nothing.
    assert not reply.calls or [(call.name, call.arguments) for call in reply.calls] == made[:1]


PIECES = [
    '<>/{}":,\\ tol_caihnk\n[]`;=|',
    "<think>",
    "</think>",
    '{"name": "f", "arguments": {}}',
    "functions.f:0",
    "f",
]


@pytest.mark.parametrize("name", FORMATS)
@given(st.data())
def test_no_text_makes_a_parser_crash(name, data):
    tool_format = load_format(name)
    pieces = [*PIECES[0], *PIECES[1:], *tool_format.control, "<function=f>", "<parameter=x>", "</parameter>", "```json"]
    text = "".join(data.draw(st.lists(st.sampled_from(pieces), max_size=12)))
    for opened in (False, True):
        reply = tool_format.parse(text, thinking_open=opened)
        assert not (reply.orderly and (reply.problems or not reply.calls))
        assert all(
            0 <= start < end <= len(text) for start, end in tool_format.literals(text, thinking_open=opened)
        ) or (not text)


@pytest.mark.parametrize("name", FORMATS)
def test_thinking_and_content_are_told_from_calls(name):
    tool_format = load_format(name)
    content = "" if name in ("llama_json", "pythonic") else "I look."
    call = ToolCall("look", {"at": "it"}, tool_format.call_id(0, "look"))
    reply = tool_format.parse(tool_format.turn(Reply("hm", content, [call], ())))
    assert (reply.thinking, reply.content, list(reply.calls), list(reply.problems)) == ("hm", content, [call], [])
    assert reply.orderly


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ("harmony",)])
def test_a_call_inside_thinking_does_not_run(name):
    tool_format = load_format(name)
    write_probe_call = tool_format.write(ToolCall("look", {}, tool_format.call_id(0, "look")))
    think, think_end = getattr(tool_format, "thinking", ("<think>", "</think>"))
    reply = tool_format.parse(f"{think}{write_probe_call}{think_end}done")
    assert not reply.calls
    assert reply.content == "done"
    assert reply.problems or name in ("llama_json", "pythonic"), "a bare call in thinking is no call of Llama's"


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_shown_of_a_call_is_none_that_could_be_copied(name):
    tool_format = load_format(name)
    assert not tool_format.parse(tool_format.correction(["it is odd"])).calls
    assert not tool_format.parse(tool_format.instructions([])).calls
    assert "it is odd" in tool_format.correction(["it is odd"])
