"""The plain format: well-formed replies are read as inference servers read them; what those repair is a problem."""

import pytest
from format_cases import NO_JSON, assert_only_b_runs, assert_read, assert_refused


@pytest.mark.parametrize(
    ("name", "text", "arguments", "content"),
    [("plain", 'Look:\n```tool_call\n{"name": "a", "arguments": {"x": "```"}}\n```', [{"x": "```"}], "Look:")],
)
def test_a_well_formed_reply_is_read(name, text, arguments, content):
    assert_read(name, text, arguments, content)


@pytest.mark.parametrize(
    ("name", "text", "expected"), [("plain", '```tool_call\n{"name": "a"}\n```', 'no "arguments"')]
)
def test_what_others_repair_is_a_problem(name, text, expected):
    assert_refused(name, text, expected)


@pytest.mark.parametrize(("given", "expected"), NO_JSON)
@pytest.mark.parametrize(("name", "text"), [("plain", '```tool_call\n{"name": "f", "arguments": …}\n```')])
def test_arguments_are_strict_json(name, text, given, expected):
    assert_refused(name, text.replace("…", given), expected)


@pytest.mark.parametrize(
    ("name", "text"), [("plain", '```tool_call\noops\n```\n```tool_call\n{"name": "b", "arguments": {}}\n```')]
)
def test_well_formed_calls_beside_a_malformed_one_run(name, text):
    assert_only_b_runs(name, text)
