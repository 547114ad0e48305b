"""MiniMax M3's elements: the schema says at every depth what they are."""

import pytest

from atropos_agent.formats.minimax_m3 import MARK, MiniMaxM3
from tools.base import ToolCall

ROW = {"type": "object", "properties": {"n": {"type": "integer"}, "next": {"$ref": "#/$defs/Row"}}}
PARAMETERS = {
    "type": "object",
    "properties": {
        "rows": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#/$defs/Row"}}]},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
    "$defs": {"Row": ROW},
}
FORMAT = MiniMaxM3([{"function": {"name": "fill", "parameters": PARAMETERS}}])


@pytest.mark.parametrize(
    "arguments",
    [
        {"rows": [{"n": 1, "next": {"n": 2}}, {}]},
        {"rows": [], "counts": {}},
        {"counts": {"a": 1, "b": 2}},
    ],
)
def test_parts_have_the_types_of_their_schemas(arguments):
    assert FORMAT.parse(FORMAT.write(ToolCall("fill", arguments))).calls[0].arguments == arguments


@pytest.mark.parametrize("arguments", [{"rows": None}, {"counts": {"a": None}}, {"other": 5}, {"other": [1]}])
def test_a_call_that_would_be_read_as_another_is_not_written(arguments):
    with pytest.raises(ValueError, match="can't be written"):
        FORMAT.write(ToolCall("fill", arguments))


def test_a_part_of_another_type_is_malformed():
    reply = FORMAT.parse(FORMAT.write(ToolCall("fill", {"rows": [{"n": 1}]})).replace(">1", ">one"))
    assert not reply.calls
    assert "'n' is not integer" in reply.problems[0]


@pytest.mark.parametrize("inside", ["<a>" * 10_000, "<a>" * 99 + "x", "<>", "</a>", "<a"])
def test_elements_that_never_end_are_one_problem(inside):
    reply = FORMAT.parse(
        FORMAT.write(ToolCall("fill", {"counts": {}})).replace("<counts>", inside.replace("<", f"{MARK}<"))
    )
    assert not reply.calls
    assert len(reply.problems) == 1


@pytest.mark.parametrize("odd", [5, "x", ["x"]])
@pytest.mark.parametrize("parameters", [lambda odd: odd, lambda odd: {"a": {"type": "object", "properties": odd}}])
def test_parts_named_oddly_by_an_agents_schema_are_not_named(odd, parameters):
    schema = {"type": "object", "properties": parameters(odd)}
    given = MiniMaxM3([{"function": {"name": "fill", "parameters": schema}}])
    call = ToolCall("fill", {"a": {"b": "x"}})
    assert given.parse(MiniMaxM3().write(call)).calls[0].arguments == call.arguments
