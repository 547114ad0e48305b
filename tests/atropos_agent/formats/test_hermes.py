"""The Hermes format: every malformed call is reported, nothing is repaired, nothing crashes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atropos_agent.formats.hermes import CALL, Hermes

hermes = Hermes()

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
calls = st.tuples(st.text(min_size=1), st.dictionaries(st.text(), json_values, max_size=4))


def written(name, arguments, **dumps):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, **dumps)}\n</tool_call>"


@given(st.lists(calls, max_size=4), st.booleans())
def test_every_well_formed_call_is_read_back_in_order(made, ascii_only):
    text = "words ".join(written(name, arguments, ensure_ascii=ascii_only) for name, arguments in made)
    reply = hermes.parse(text)
    assert [(call.name, call.arguments) for call in reply.calls] == made
    assert not reply.problems
    assert [call.id for call in reply.calls] == [f"call_{i}" for i in range(len(made))]


@given(st.lists(st.sampled_from([*'<>/{}":,\\ tol_caihnk\n', *hermes.control])).map("".join))
def test_no_text_makes_the_parser_crash(text):
    reply = hermes.parse(text)
    if CALL in text:
        assert reply.calls or reply.problems
    assert all(text[start:end].startswith(CALL) for start, end in hermes.literals(text))


@given(calls, st.data())
def test_a_call_that_is_cut_short_is_never_run(made, data):
    text = written(*made)
    cut = text[: data.draw(st.integers(len("<tool_call>"), len(text) - 1))]
    reply = hermes.parse(cut)
    assert not reply.calls
    assert reply.problems


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<tool_call>{'name': 'ls', 'arguments': {}}</tool_call>", "not valid JSON"),
        ('<tool_call>{"name": "ls"}</tool_call>', 'no "arguments"'),
        ('<tool_call>{"arguments": {}}</tool_call>', 'no "name"'),
        ('<tool_call>{"name": "ls", "arguments": "{}"}</tool_call>', 'no "arguments"'),
        ('<tool_call>["ls"]</tool_call>', "must be a JSON object"),
        ('<tool_call>{"name": "ls", "arguments": {}}', "not closed"),
        ('<tool_call>{"name": "ls", "arguments": {}} and more</tool_call>', "not closed"),
        ('<tool_call>{"name": "ls", "name": "rm", "arguments": {}}</tool_call>', "same key twice"),
        ('<tool_call>{"name": "f", "arguments": {"x": NaN}}</tool_call>', "NaN"),
        ('<tool_call>{"name": "f", "arguments": {"x": "a\nb"}}</tool_call>', "as \\n"),
        ("<tool_call>" + "[" * 100_000, "not valid JSON"),
        ("words </tool_call>", "without"),
        ('<think>\n<tool_call>{"name": "ls", "arguments": {}}</tool_call>\n</think>', "inside <think>"),
        ('<think><tool_call>{"name": "ls", "arguments": {}}</tool_call>', "never closed"),
    ],
)
def test_a_malformed_call_is_reported_and_not_run(text, expected):
    reply = hermes.parse(text)
    assert not reply.calls
    assert any(expected in problem for problem in reply.problems), reply.problems
    assert expected in hermes.correction(reply.problems)


def test_well_formed_calls_beside_a_malformed_one_run():
    text = written("a", {}) + "<tool_call>{oops</tool_call>" + written("b", {})
    reply = hermes.parse(text)
    assert [call.name for call in reply.calls] == ["a", "b"]
    assert len(reply.problems) == 1


def test_tags_inside_json_strings_are_text():
    arguments = {"command": "echo '</tool_call><tool_call><think>'"}
    reply = hermes.parse(written("terminal", arguments))
    assert reply.calls[0].arguments == arguments
    assert not reply.problems


def test_calls_are_found_where_thinking_tags_in_them_are_text():
    first, second = written("a", {"x": "</think>"}), written("b", {})
    thinking = f"<think>{second}</think>\n"
    behind = hermes.literals(f"{thinking}{first} and {second}")
    assert behind[0] == (len(thinking), len(thinking + first))
    assert len(behind) == 2
    for text in (f"{first}{second}", f"hm {first}", "no call"):
        assert [text[start:end] for start, end in hermes.literals(text)] == [
            call for call in (first, second) if call in text
        ]
    assert hermes.literals(f"hm</think>{first}", thinking_open=True) == [(10, 10 + len(first))]
    assert hermes.literals(f"hm {second}", thinking_open=True) == []
    for broken in ("<tool_call>{</think></tool_call>", "<tool_call>{</think>"):
        for behind in ("", second):
            assert hermes.literals(f"hm {broken}{behind}")[0] == (3, 3 + len(broken))


def test_what_is_shown_of_a_call_is_none_that_could_be_copied():
    assert not hermes.parse(hermes.correction(["it is odd"])).calls
    assert not hermes.parse(hermes.instructions([])).calls


def test_thinking_is_kept_apart_whether_the_prompt_opened_it_or_not():
    opened = hermes.parse("<think>hm</think>yes")
    continued = hermes.parse("hm</think>yes", thinking_open=True)
    assert (opened.thinking, opened.content) == (continued.thinking, continued.content) == ("hm", "yes")
    assert hermes.parse("yes").thinking is None


def test_the_system_prompt_shows_every_schema_as_json():
    schemas = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
    prompt = hermes.system_prompt(schemas, preamble="Be good.", working_dir="/app")
    shown = prompt.split("<tools>\n")[1].split("\n</tools>")[0]
    assert [json.loads(line) for line in shown.splitlines()] == schemas
    assert prompt.startswith("Be good.\n\nYou work in /app.")


def test_without_tools_the_system_prompt_speaks_of_none():
    assert "tool_call" not in hermes.system_prompt([])
