"""gpt-oss's format: well-formed replies are read as inference servers read them; what those repair is a problem."""

import pytest
from format_cases import NO_JSON, assert_only_b_runs, assert_read, assert_refused

ANALYSIS = "<|channel|>analysis<|message|>Weather.<|end|><|start|>assistant"

TO_WEATHER = "<|channel|>commentary to=functions.get_current_weather"


@pytest.mark.parametrize(
    ("name", "text", "arguments", "content"),
    [
        (
            "harmony",
            f'{ANALYSIS}{TO_WEATHER} <|constrain|>json<|message|>{{"location": "Tokyo"}}',
            [{"location": "Tokyo"}],
            "",
        ),
        ("harmony", f'{ANALYSIS}{TO_WEATHER}<|message|>{{\n"location": "Tokyo"\n}}', [{"location": "Tokyo"}], ""),
        (
            "harmony",
            ' to=functions.get_current_weather<|channel|>commentary json<|message|>{"a": "<|end|>"}',
            [{"a": "<|end|>"}],
            "",
        ),
        (
            "harmony",
            f'{TO_WEATHER}<|message|>{{}}<|call|><|start|>assistant{TO_WEATHER}<|message|>{{"b": 1}}<|call|>',
            [{}, {"b": 1}],
            "",
        ),
        ("harmony", f"{ANALYSIS}<|channel|>final<|message|>This is a test", [], "This is a test"),
        (
            "harmony",
            f"<|channel|>commentary<|message|>I look.<|end|><|start|>assistant{TO_WEATHER}<|message|>{{}}",
            [{}],
            "I look.",
        ),
    ],
)
def test_a_well_formed_reply_is_read(name, text, arguments, content):
    assert_read(name, text, arguments, content)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("harmony", f"{TO_WEATHER}<|message|>foo", "not valid JSON"),
        ("harmony", f"{TO_WEATHER} <|constrain|>json<|message|>", "arguments are missing"),
        ("harmony", "<|channel|>commentary <|constrain|>json to=functions.f<|message|>{}", "not json to=functions.f"),
        ("harmony", "<|channel|>commentary to=browser.open<|message|>{}", "must go to functions.NAME"),
        ("harmony", "<|channel|>commentary to=functions.f python<|message|>{}", "content type"),
        ("harmony", "<|channel|>analysis", "header"),
        ("harmony", "<|channel|>thoughts<|message|>x", "no channel 'thoughts'"),
    ],
)
def test_what_others_repair_is_a_problem(name, text, expected):
    assert_refused(name, text, expected)


@pytest.mark.parametrize(("given", "expected"), NO_JSON)
@pytest.mark.parametrize(("name", "text"), [("harmony", f"{TO_WEATHER}<|message|>…")])
def test_arguments_are_strict_json(name, text, given, expected):
    assert_refused(name, text.replace("…", given), expected)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "harmony",
            f"{TO_WEATHER}<|message|>oops<|call|>{ANALYSIS}<|channel|>commentary to=functions.b<|message|>{{}}",
        )
    ],
)
def test_well_formed_calls_beside_a_malformed_one_run(name, text):
    assert_only_b_runs(name, text)
