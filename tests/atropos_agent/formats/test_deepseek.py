"""DeepSeek's formats: well-formed replies are read as inference servers read them; what those repair is a problem."""

import pytest
from format_cases import NO_JSON, assert_only_b_runs, assert_read, assert_refused


def deepseek(*calls):
    return f"<｜tool▁calls▁begin｜>{''.join(calls)}<｜tool▁calls▁end｜>"


V3 = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n```json\n{}\n```<｜tool▁call▁end｜>"

V31 = "<｜tool▁call▁begin｜>{}<｜tool▁sep｜>{}<｜tool▁call▁end｜>"


@pytest.mark.parametrize(
    ("name", "text", "arguments", "content"),
    [
        ("deepseek_v3", deepseek(V3.format("foo", '{"x": 1}'), "\n", V3.format("bar", "{}")), [{"x": 1}, {}], ""),
        (
            "deepseek_v31",
            "normal text" + deepseek(V31.format("foo", '{"x":1}'), V31.format("bar", '{"y":2}')),
            [{"x": 1}, {"y": 2}],
            "normal text",
        ),
    ],
)
def test_a_well_formed_reply_is_read(name, text, arguments, content):
    assert_read(name, text, arguments, content)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("deepseek_v3", "<｜tool▁calls▁begin｜>" + V3.format("f", "{}"), "not closed"),
        ("deepseek_v3", deepseek(V31.format("f", "{}")), "must begin with function"),
        ("deepseek_v31", deepseek(V31.format("f", "{'x': 1}")), "not valid JSON"),
        ("deepseek_v31", "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>", "empty"),
    ],
)
def test_what_others_repair_is_a_problem(name, text, expected):
    assert_refused(name, text, expected)


@pytest.mark.parametrize(("given", "expected"), NO_JSON)
@pytest.mark.parametrize(
    ("name", "text"), [("deepseek_v3", deepseek(V3.format("f", "…"))), ("deepseek_v31", deepseek(V31.format("f", "…")))]
)
def test_arguments_are_strict_json(name, text, given, expected):
    assert_refused(name, text.replace("…", given), expected)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "deepseek_v31",
            deepseek(V31.format("a", "{"), V31.format("b", "{}")),
        )
    ],
)
def test_well_formed_calls_beside_a_malformed_one_run(name, text):
    assert_only_b_runs(name, text)
