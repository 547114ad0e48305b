"""Kimi's format: well-formed replies are read as inference servers read them; what those repair is a problem."""

import pytest
from format_cases import NO_JSON, assert_only_b_runs, assert_read, assert_refused


def kimi(*calls):
    one = "<|tool_call_begin|>{}<|tool_call_argument_begin|>{}<|tool_call_end|>"
    return f"<|tool_calls_section_begin|>{''.join(one.format(*call) for call in calls)}<|tool_calls_section_end|>"


@pytest.mark.parametrize(
    ("name", "text", "arguments", "content"),
    [
        (
            "kimi",
            kimi(("functions.get_weather:0", '{"city": "Beijing"}'), ("functions.get_news:1", '{"html": "<div>"}')),
            [{"city": "Beijing"}, {"html": "<div>"}],
            "",
        ),
        ("kimi", "Look. " + kimi(("\nfunctions.a:0 ", " {} ")).replace("|><|", "|> <|"), [{}], "Look."),
    ],
)
def test_a_well_formed_reply_is_read(name, text, arguments, content):
    assert_read(name, text, arguments, content)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [("kimi", kimi(("f.0", "{}")), "an id such as"), ("kimi", kimi(("functions.f:0", '{"x": 1')), "not valid JSON")],
)
def test_what_others_repair_is_a_problem(name, text, expected):
    assert_refused(name, text, expected)


@pytest.mark.parametrize(("given", "expected"), NO_JSON)
@pytest.mark.parametrize(("name", "text"), [("kimi", kimi(("functions.f:0", "…")))])
def test_arguments_are_strict_json(name, text, given, expected):
    assert_refused(name, text.replace("…", given), expected)


@pytest.mark.parametrize(("name", "text"), [("kimi", kimi(("functions.a:0", '{"city": '), ("functions.b:1", "{}")))])
def test_well_formed_calls_beside_a_malformed_one_run(name, text):
    assert_only_b_runs(name, text)
