"""Calls in `<invoke>` tags: MiniMax's by the tool's schema, DeepSeek's by an attribute."""

import pytest
from format_cases import assert_read, assert_refused

SECTION = "<minimax:tool_call>\n{}\n</minimax:tool_call>"
AREA = '<invoke name="calculate_area">\n{}\n</invoke>'


def dsml(inside, tag="function_calls"):
    return f'<｜DSML｜{tag}>\n<｜DSML｜invoke name="calculate_area">\n{inside}\n</｜DSML｜invoke>\n</｜DSML｜{tag}>'


def test_minimax_values_are_what_the_schema_says():
    given = (
        '<parameter name="shape">a\n</parameter>\n<parameter name="precision">2</parameter>\n'
        '<parameter name="dimensions">{"a": "</parameter>"}</parameter>'
    )
    arguments = {"shape": "a\n", "precision": 2, "dimensions": {"a": "</parameter>"}}
    assert_read("minimax", SECTION.format(AREA.format(given)), [arguments], "")
    assert_read("minimax", SECTION.format(AREA.format("") + AREA.format("")), [{}, {}], "")


def test_dsml_values_are_what_their_attribute_says():
    given = (
        '<｜DSML｜parameter name="shape" string="true">5</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="exact" string="false">[1, "</｜DSML｜parameter>"]</｜DSML｜parameter>'
    )
    arguments = {"shape": "5", "exact": [1, "</｜DSML｜parameter>"]}
    assert_read("deepseek_v32", f"Well.\n\n{dsml(given)}", [arguments], "Well.")
    assert_read("deepseek_v4", dsml(given, "tool_calls"), [arguments], "")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("minimax", SECTION.format(AREA.format('<parameter name="precision">x</parameter>')), "written as JSON"),
        ("minimax", SECTION.format(AREA.format('<parameter name="shape">x')), "not closed"),
        ("minimax", SECTION.format(AREA.format("words")), "something else"),
        ("minimax", SECTION.format('<invoke name="">\n</invoke>'), "missing"),
        ("deepseek_v32", dsml('<｜DSML｜parameter name="a">x</｜DSML｜parameter>'), 'string="true"'),
        ("deepseek_v32", dsml('<｜DSML｜parameter name="a" string="false">x</｜DSML｜parameter>'), "JSON"),
        ("deepseek_v32", dsml('<｜DSML｜parameter name="a" string="false">1 2</｜DSML｜parameter>'), "after the JSON"),
        ("deepseek_v32", dsml("", "tool_calls"), "outside of <｜DSML｜function_calls>"),
    ],
)
def test_what_is_not_written_so_is_malformed(name, text, expected):
    assert_refused(name, text, expected)


@pytest.mark.parametrize("value", ["a", "b"])
def test_an_argument_that_is_there_twice_is_malformed(value):
    one = f'<parameter name="shape">{value}</parameter>\n'
    assert_refused("minimax", SECTION.format(AREA.format(one * 2)), "twice")
