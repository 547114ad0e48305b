"""Qwen3-Coder's format: well-formed replies are read as inference servers read them; what those repair is a problem."""

import pytest
from format_cases import assert_only_b_runs, assert_read, assert_refused


def xml(name, **given):
    fields = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in given.items())
    return f"<tool_call>\n<function={name}>\n{fields}</function>\n</tool_call>"


def seed(name, **given):
    return xml(name, **given).replace("tool_call>", "seed:tool_call>")


DALLAS = {"city": "Dallas", "state": "TX"}

SQUARE = {"shape": "square", "dimensions": {"width": 10, "height": [1, 2]}, "precision": 2}


@pytest.mark.parametrize(
    ("name", "text", "arguments", "content"),
    [
        ("qwen_coder", xml("get_current_weather", **DALLAS), [DALLAS], ""),
        ("qwen_coder", f"Sure!{xml('get_current_weather', **DALLAS)}", [DALLAS], "Sure!"),
        (
            "qwen_coder",
            f"{xml('get_current_weather', **DALLAS)}\n{xml('get_current_weather', city='x')}",
            [DALLAS, {"city": "x"}],
            "",
        ),
        (
            "qwen_coder",
            xml("calculate_area", shape="square", dimensions='{"width": 10, \n "height": [1, 2]}', precision=2),
            [SQUARE],
            "",
        ),
        (
            "qwen_coder",
            xml("calculate_area", exact="True", factor="1.5", label="null"),
            [{"exact": True, "factor": 1.5, "label": None}],
            "",
        ),
        (
            "qwen_coder",
            xml("calculate_area", dimensions='{"a": "</parameter></function></tool_call>"}', precision=1),
            [{"dimensions": {"a": "</parameter></function></tool_call>"}, "precision": 1}],
            "",
        ),
        ("qwen_coder", xml("get_current_weather", city="x\n<parameter=y>"), [{"city": "x\n<parameter=y>"}], ""),
        ("qwen_coder", xml("get_current_weather", city="\nTwo\nlines\n"), [{"city": "\nTwo\nlines\n"}], ""),
        ("seed_oss", f"<seed:think>hm</seed:think>Sure!{seed('get_current_weather', **DALLAS)}", [DALLAS], "Sure!"),
        (
            "seed_oss",
            "<seed:tool_call>\n<function=calculate_area>\n<parameter=precision>2</parameter>\n"
            "<parameter=shape>a\nb</parameter>\n</function>\n</seed:tool_call>",
            [{"precision": 2, "shape": "a\nb"}],
            "",
        ),
    ],
)
def test_a_well_formed_reply_is_read(name, text, arguments, content):
    assert_read(name, text, arguments, content)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("qwen_coder", "<function=f>\n<parameter=x>\n1\n</parameter>\n</function></tool_call>", "without its start"),
        ("qwen_coder", "<tool_call>\n<function=f>\n<parameter=x>\n1\n</function>\n</tool_call>", "not closed"),
        ("qwen_coder", xml("calculate_area", shape="x\n<parameter=factor>\n1"), "'shape' is not closed"),
        ("qwen_coder", xml("calculate_area", precision="two"), "'precision' is not integer"),
        ("qwen_coder", xml("calculate_area", exact="maybe"), "'exact' is not boolean"),
        ("qwen_coder", xml("calculate_area", dimensions="{'a': 1}"), "'dimensions' is not object"),
        ("qwen_coder", xml("f", x=1).replace("</function>", "<parameter=x>\n2\n</parameter>\n</function>"), "twice"),
        ("qwen_coder", "<tool_call>{}</tool_call>", "must begin with <function="),
        (
            "seed_oss",
            seed("f", x=1).replace("</seed:tool_call>", "</tool_call>"),
            "not closed right after its function",
        ),
    ],
)
def test_what_others_repair_is_a_problem(name, text, expected):
    assert_refused(name, text, expected)


@pytest.mark.parametrize(("name", "text"), [("qwen_coder", "<tool_call>oops</tool_call>" + xml("b"))])
def test_well_formed_calls_beside_a_malformed_one_run(name, text):
    assert_only_b_runs(name, text)
