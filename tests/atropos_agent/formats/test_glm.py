"""GLM's format: well-formed replies are read as inference servers read them; what those repair is a problem."""

import pytest
from format_cases import assert_only_b_runs, assert_read, assert_refused


def glm(name, **given):
    pairs = "".join(
        f"    <arg_key>{key}</arg_key>\n    <arg_value>{value}</arg_value>\n" for key, value in given.items()
    )
    return f"<tool_call>{name}\n{pairs}</tool_call>"


DALLAS = {"city": "Dallas", "state": "TX"}


@pytest.mark.parametrize(
    ("name", "text", "arguments", "content"),
    [
        ("glm", glm("get_current_weather", **DALLAS), [DALLAS], ""),
        ("glm", f"I look. {glm('get_current_weather', **DALLAS)}", [DALLAS], "I look."),
        ("glm", "<tool_call>now\n</tool_call>", [{}], ""),
        (
            "glm",
            glm("calculate_area", dimensions='{"a": "</arg_value></tool_call>"}', precision=1),
            [{"dimensions": {"a": "</arg_value></tool_call>"}, "precision": 1}],
            "",
        ),
        ("glm", glm("now", zone="2", place="Oslo"), [{"zone": 2, "place": "Oslo"}], ""),
        (
            "glm",
            "<tool_call>get_current_weather<arg_key>city</arg_key><arg_value>x</arg_value></tool_call>",
            [{"city": "x"}],
            "",
        ),
        (
            "glm",
            glm("calculate_area", precision=3, dimensions='{"a": 1}'),
            [{"precision": 3, "dimensions": {"a": 1}}],
            "",
        ),
    ],
)
def test_a_well_formed_reply_is_read(name, text, arguments, content):
    assert_read(name, text, arguments, content)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("glm", "<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>1</arg_value>", "not closed"),
        ("glm", "<tool_call>f\n<arg_key>x\n<arg_value>1</arg_value>\n</tool_call>", "not closed"),
        ("glm", "<tool_call>f\n<arg_key>x</arg_key>\n</tool_call>", "no <arg_value>"),
        ("glm", glm("calculate_area", precision="many"), "'precision' is not integer"),
    ],
)
def test_what_others_repair_is_a_problem(name, text, expected):
    assert_refused(name, text, expected)


@pytest.mark.parametrize(("name", "text"), [("glm", "<tool_call></tool_call>" + glm("b"))])
def test_well_formed_calls_beside_a_malformed_one_run(name, text):
    assert_only_b_runs(name, text)
