"""Llama's JSON format: well-formed replies are read as inference servers read them; what those repair is a problem."""

import pytest
from format_cases import NO_JSON, assert_read, assert_refused

from atropos_agent.formats import load_format


@pytest.mark.parametrize(
    ("name", "text", "arguments", "content"),
    [
        ("llama_json", '{"name": "searchTool", "parameters": {"query": "x; {y}"}}', [{"query": "x; {y}"}], ""),
        ("llama_json", '<|python_tag|>{"name": "a", "arguments": {"q": 1}}', [{"q": 1}], ""),
        (
            "llama_json",
            '{"name": "a", "parameters": {"q": {"r": [1]}}}; {"name": "b", "arguments": {}}',
            [{"q": {"r": [1]}}, {}],
            "",
        ),
    ],
)
def test_a_well_formed_reply_is_read(name, text, arguments, content):
    assert_read(name, text, arguments, content)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("llama_json", 'Here: {"name": "f", "parameters": {}}', "nothing else"),
        ("llama_json", '{"name": "f", "parameters": {}} and more', "nothing else"),
        ("llama_json", '{"name": "f", "parameters": {}, "arguments": {}}', '"parameters"'),
        ("llama_json", "<|python_tag|>print(1)", "not valid JSON"),
        ("llama_json", '{"name": "f", "parameters": {"x": ', "not valid JSON"),
    ],
)
def test_what_others_repair_is_a_problem(name, text, expected):
    assert_refused(name, text, expected)


@pytest.mark.parametrize(("given", "expected"), NO_JSON)
@pytest.mark.parametrize(("name", "text"), [("llama_json", '{"name": "f", "parameters": …}')])
def test_arguments_are_strict_json(name, text, given, expected):
    assert_refused(name, text.replace("…", given), expected)


@pytest.mark.parametrize("text", ['{"answer": 42}', "[1, 2]", 'The call is {"x": 1}', '{"name": "Ann", "age": 3}'])
def test_other_json_is_an_answer_of_llamas_unless_it_begins_like_a_call(text):
    reply = load_format("llama_json").parse(text)
    assert not reply.calls
    assert bool(reply.problems) == text.startswith('{"name"')
