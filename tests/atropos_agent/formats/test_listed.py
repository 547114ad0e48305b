"""Calls as one JSON list between tags: well-formed replies are read, what others repair is a problem."""

import pytest
from format_cases import NO_JSON, assert_read, assert_refused

TAGS = {"nemotron": ("<TOOLCALL>", "</TOOLCALL>"), "apriel": ("<tool_calls>", "</tool_calls>")}


def listed(name, *calls):
    opening, closing = TAGS[name]
    return f"{opening}[{', '.join(calls)}]{closing}"


@pytest.mark.parametrize("name", TAGS)
def test_all_calls_of_a_list_are_read(name):
    first = '{"name": "get_current_weather", "arguments": {"city": "</TOOLCALL> </tool_calls>]"}}'
    second = '{"name": "b", "arguments": {"x": [1, {"y": null}]}, "id": "call_1"}'
    arguments = [{"city": "</TOOLCALL> </tool_calls>]"}, {"x": [1, {"y": None}]}]
    assert_read(name, f"Well.\n{listed(name, first, second)}", arguments, "Well.")


@pytest.mark.parametrize("name", TAGS)
@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([], "a JSON list of calls"),
        (['{"name": "b"}'], 'no "arguments"'),
        (['{"name": "b", "arguments": "{}"}'], "that is a JSON object"),
        (["1"], "must be a JSON object"),
        *(([f'{{"name": "b", "arguments": {given}}}'], expected) for given, expected in NO_JSON),
    ],
)
def test_what_is_no_list_of_calls_is_malformed(name, calls, expected):
    assert_refused(name, listed(name, *calls), expected)


@pytest.mark.parametrize("name", TAGS)
def test_a_list_that_is_not_closed_is_malformed(name):
    whole = listed(name, '{"name": "b", "arguments": {}}')
    assert_refused(name, whole.removesuffix(TAGS[name][1]), "is not closed with")
    assert_refused(name, whole.replace("[", "").replace("]", ""), "a JSON list of calls")
