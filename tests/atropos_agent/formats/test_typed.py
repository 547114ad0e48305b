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
    "mixed": {"enum": ["7", 8]},
    "odd/name": {"$ref": "#/$defs/a~1b~0c"},
    "narrow": {"type": ["integer", "string"], "allOf": [{"type": "integer"}]},
    "short": {"type": "string", "anyOf": [{"maxLength": 3}, {"pattern": "^a"}]},
    "untyped": {"properties": {"x": {}}},
    "wrong": {"type": "string", "enum": [1]},
}
DEFS = {"Point": {"type": "object"}, "Loop": {"$ref": "#/$defs/Loop"}, "a/b~c": {"type": "string"}}
SCHEMAS = [{"function": {"name": "f", "parameters": {"properties": PROPERTIES, "$defs": DEFS}}}]
TYPES = ArgumentTypes(SCHEMAS)
JSON_TYPES = ArgumentTypes(SCHEMAS, prefer_json=True)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("text", " 5 ", " 5 "),
        ("text", "null", "null"),
        ("number", "5", 5),
        ("number", " 1e3\n", 1000.0),
        ("count", "-7", -7),
        ("count", "7.0", 7.0),
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
        ("mixed", "7", "7"),
        ("mixed", "8", 8),
        ("odd/name", "5", "5"),
        ("narrow", "3", 3),
        ("short", "5", "5"),
        ("untyped", '{"x": 1}', {"x": 1}),
        ("either", '"3"', '"3"'),
        ("any", "{}", "{}"),
        ("loop", "5", "5"),
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
        ("number", "1e999"),
        ("narrow", "word"),
    ],
)
def test_another_text_is_a_problem_that_names_the_argument(key, text):
    with pytest.raises(ValueError, match=f"the argument '{key}'"):
        TYPES.value("f", key, text)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("text", "5", "5"),
        ("text", '"5"', '"5"'),
        ("either", '"3"', "3"),
        ("maybe", "null", None),
        ("any", "{}", {}),
        ("any", "words", "words"),
        ("any", '"5"', "5"),
        ("mixed", "7", "7"),
        ("loop", "5", 5),
        ("unknown", "[1]", [1]),
        ("unknown", "words", "words"),
    ],
)
def test_where_json_is_preferred_only_what_must_be_text_is_not_read_as_json(key, text, value):
    found = JSON_TYPES.value("f", key, text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("key", "text", "place"), [("nested", '{"x": "</v>"}</v>', 13), ("count", " 5</v>", 2), ("nested", "{</v>", 0)]
)
def test_the_json_of_what_is_no_text_says_where_it_ends(key, text, place):
    assert TYPES.end_of_json("f", key, text, 0) == place


@pytest.mark.parametrize("key", ["text", "either", "any", "unknown"])
def test_what_may_be_text_ends_at_its_tag_alone(key):
    assert TYPES.end_of_json("f", key, "5</v>", 0) == 0


def test_a_schema_that_contradicts_itself_says_nothing():
    assert TYPES.value("f", "wrong", "1") == "1"


def test_arguments_are_found_in_every_alternative_of_a_tools_parameters():
    counted = {"properties": {"kind": {"const": "count"}, "value": {"type": "integer"}}}
    named = {"properties": {"kind": {"const": "name"}, "value": {"type": "array"}}}
    parameters = {"oneOf": [counted, {"$ref": "#/$defs/Named"}], "$defs": {"Named": named}}
    types = ArgumentTypes([{"function": {"name": "g", "parameters": parameters}}])
    assert types.keys("g") == {"kind", "value"}
    assert types.value("g", "value", "5") == 5
    assert types.value("g", "value", "[5]") == [5]
    assert types.value("g", "kind", "count") == "count"


@pytest.mark.parametrize(("key", "value"), [("either", "3"), ("text", None), ("maybe", "x"), ("any", 5)])
def test_what_text_can_not_tell_is_not_written(key, value):
    with pytest.raises(ValueError, match=f"the argument '{key}'"):
        TYPES.text("f", key, value)


def test_a_value_ends_where_the_call_goes_on():
    assert end_of_value("a</v>b</v> <k>", 0, "</v>", ("<k>",)) == 6
    with pytest.raises(ValueError, match="not closed"):
        end_of_value("a</v>b", 0, "</v>", ("<k>",))


@pytest.mark.parametrize("wrong", [5, True, "x", [[]], [{}], {"a": 1}])
@pytest.mark.parametrize("word", ["properties", "type", "enum", "anyOf", "oneOf", "allOf", "$ref"])
def test_what_is_no_schema_is_no_failure(word, wrong):
    tools = [{"function": {"name": "f", "parameters": {"properties": {"key": {word: wrong}}, word: wrong}}}]
    keys = {"key"} if word != "properties" else {"a"} if isinstance(wrong, dict) else set()
    assert ArgumentTypes(tools).keys("f") == keys


def test_schemas_that_hold_themselves_many_times_are_looked_into_once():
    itself = {"anyOf": [{"$ref": "#"}] * 50, "properties": {"key": {"anyOf": [{"$ref": "#/properties/key"}] * 50}}}
    tools = [{"function": {"name": "f", "parameters": {**itself, "oneOf": [{"$ref": "#"}] * 50}}}]
    assert ArgumentTypes(tools, prefer_json=True).value("f", "key", "5") == 5
