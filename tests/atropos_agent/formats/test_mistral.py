"""Mistral's formats: well-formed replies are read as inference servers read them; what those repair is a problem."""

import pytest
from format_cases import NO_JSON, assert_only_b_runs, assert_read, assert_refused


@pytest.mark.parametrize(
    ("name", "text", "arguments", "content"),
    [
        ("mistral", '[TOOL_CALLS][{"name": "add", "arguments":{"a": 3.5, "b": 4}}]', [{"a": 3.5, "b": 4}], ""),
        ("mistral", '[TOOL_CALLS] [{"arguments":{"name": "John"}, "name": "get_age"}]', [{"name": "John"}], ""),
        (
            "mistral",
            '[TOOL_CALLS]  [ {"name":"a" , "arguments" : {} }, {"name": "b", "arguments": {"x": "]"}}]',
            [{}, {"x": "]"}],
            "",
        ),
        ("mistral_args", '[TOOL_CALLS]add{"a": 3.5, "b": 4}', [{"a": 3.5, "b": 4}], ""),
        (
            "mistral_args",
            '[TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]sub[CALL_ID]abcdefghi[ARGS]{"b": {"c": 2}}',
            [{"a": 1}, {"b": {"c": 2}}],
            "",
        ),
    ],
)
def test_a_well_formed_reply_is_read(name, text, arguments, content):
    assert_read(name, text, arguments, content)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("mistral", '[TOOL_CALLS][{"name": "a", "arguments": {}}, {"name": "b", "arguments":{}]', "not valid JSON"),
        ("mistral", '[TOOL_CALLS]{"name": "a", "arguments": {}}', "JSON list"),
        ("mistral", '[TOOL_CALLS][{"name": "a", "arguments": {}, "id": "1"}]', "nine letters"),
        ("mistral_args", '[TOOL_CALLS]add[ARGS]{"a": 1', "not valid JSON"),
        ("mistral_args", "[TOOL_CALLS]add", "[ARGS]"),
    ],
)
def test_what_others_repair_is_a_problem(name, text, expected):
    assert_refused(name, text, expected)


@pytest.mark.parametrize(("given", "expected"), NO_JSON)
@pytest.mark.parametrize(
    ("name", "text"),
    [("mistral", '[TOOL_CALLS][{"name": "f", "arguments": …}]'), ("mistral_args", "[TOOL_CALLS]f[ARGS]…")],
)
def test_arguments_are_strict_json(name, text, given, expected):
    assert_refused(name, text.replace("…", given), expected)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mistral", '[TOOL_CALLS][{"name": "a", "arguments": 1}, {"name": "b", "arguments": {}}]'),
        ("mistral_args", "[TOOL_CALLS]a[ARGS]oops[TOOL_CALLS]b[ARGS]{}"),
    ],
)
def test_well_formed_calls_beside_a_malformed_one_run(name, text):
    assert_only_b_runs(name, text)
