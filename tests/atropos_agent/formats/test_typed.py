"""Bare text is an argument of the type that the tool's schema says."""

import pytest

from atropos_agent.formats.typed import ArgumentTypes, end_of_value

PROPERTIES = {
    "text": {"type": "string"},
    "number": {"type": "number"},
    "count": {"type": "integer"},
    "flag": {"type": "boolean"},
    "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "either": {"type": ["integer", "string"]},
    "kind": {"enum": ["a", "5"]},
    "level": {"enum": [1, 2]},
    "nested": {"$ref": "#/$defs/Point"},
    "list": {"allOf": [{"type": "array"}]},
    "loop": {"$ref": "#/$defs/Loop"},
    "any": {},
}
DEFS = {"Point": {"type": "object"}, "Loop": {"$ref": "#/$defs/Loop"}}
TYPES = ArgumentTypes([{"function": {"name": "f", "parameters": {"properties": PROPERTIES, "$defs": DEFS}}}])


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("text", " 5 ", " 5 "),
        ("text", "null", "null"),
        ("number", "5", 5),
        ("number", " 1e3\n", 1000.0),
        ("count", "-7", -7),
        ("flag", "True", True),
        ("flag", "false", False),
        ("maybe", "None", None),
        ("maybe", "3", 3),
        ("either", "3", 3),
        ("either", "3a", "3a"),
        ("kind", "5", "5"),
        ("level", "2", 2),
        ("nested", '{"x": [1, "</a>"]}', {"x": [1, "</a>"]}),
        ("list", "[]", []),
        ("any", "{}", {}),
        ("any", "words", "words"),
        ("unknown", "5", "5"),
    ],
)
def test_a_text_is_the_value_that_its_schema_says(key, text, value):
    found = TYPES.value("f", key, text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("count", "1.5"),
        ("count", "1 2"),
        ("flag", "yes"),
        ("nested", "[1]"),
        ("list", "{"),
        ("number", "NaN"),
        ("count", ""),
    ],
)
def test_another_text_is_a_problem_that_names_the_argument(key, text):
    with pytest.raises(ValueError, match=f"the argument '{key}'"):
        TYPES.value("f", key, text)


def test_a_schema_that_never_ends_allows_anything():
    assert TYPES.value("f", "loop", "5") == 5


@pytest.mark.parametrize(("key", "value"), [("either", "3"), ("text", None), ("maybe", "x"), ("any", "null")])
def test_what_text_can_not_tell_is_not_written(key, value):
    with pytest.raises(ValueError, match=f"the argument '{key}'"):
        TYPES.text("f", key, value)


def test_a_value_ends_where_the_call_goes_on():
    assert end_of_value("a</v>b</v> <k>", 0, "</v>", ("<k>",)) == 6
    with pytest.raises(ValueError, match="not closed"):
        end_of_value("a</v>b", 0, "</v>", ("<k>",))
