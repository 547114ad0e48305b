"""From an async function to a tool: schema, checked arguments, and errors that help."""

import enum
import json
import warnings
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from sandboxes.base import SandboxEnded
from tools import Tool, ToolCall, ToolError, ToolRegistry, ToolResult


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    y: float = 0.0


class Unknown:
    pass


async def weather(city: str, days: int = 1) -> str:
    """Forecast the weather.

    This paragraph is for people.

    Args:
        city: where, for example "Oslo";
            note: a second line, with a colon.
        days (int): how many days ahead.

    Returns:
        city: never described here.
    """
    return f"{city} {days}"


async def everything(
    *,
    number: float,
    colour: Colour,
    mode: Literal["a", "b"],
    names: list[str],
    counts: dict[str, int],
    point: Point,
    pair: tuple[int, int],
    path: Path,
    either: int | str,
    maybe: int | None = None,
    small: Annotated[int, Field(ge=1)] = 1,
) -> str:
    return repr((number, colour, mode, names, counts, point, pair, path, either, maybe, small))


GOOD = json.loads(
    """{"number": 1, "colour": "red", "mode": "a", "names": ["x"], "counts": {"k": 2}, "point": {"x": 1, "y": 2},
    "pair": [1, 2], "path": "/tmp", "either": "text", "maybe": null, "small": 3}"""
)


def test_the_schema_is_in_openai_function_format():
    assert Tool.of(weather).schema == {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Forecast the weather.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {
                        "type": "string",
                        "description": 'where, for example "Oslo"; note: a second line, with a colon.',
                    },
                    "days": {"type": "integer", "description": "how many days ahead.", "default": 1},
                },
                "required": ["city"],
            },
        },
    }


def test_a_schema_may_be_changed_without_changing_the_tool():
    Tool.of(weather).schema["function"]["parameters"]["properties"].clear()
    assert "city" in Tool.of(weather).schema["function"]["parameters"]["properties"]


def test_an_optional_parameter_is_shown_as_its_type_alone():
    properties = Tool.of(everything).schema["function"]["parameters"]["properties"]
    assert properties["maybe"] == {"type": "integer"}
    assert properties["names"] == {"type": "array", "items": {"type": "string"}}
    assert properties["mode"] == {"type": "string", "enum": ["a", "b"]}
    assert properties["point"] == {"$ref": "#/$defs/Point"}
    assert Tool.of(everything).parameters["$defs"]["Point"]["properties"]["x"]["type"] == "integer"


async def test_decoded_json_becomes_the_declared_types():
    result = await Tool.of(everything)(GOOD)
    point = Point(x=1, y=2.0)
    expected = (1.0, Colour.RED, "a", ["x"], {"k": 2}, point, (1, 2), Path("/tmp"), "text", None, 3)
    assert result.content == repr(expected)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"small": "5"}, 'small: input should be a valid integer, not "5"'),
        ({"small": 5.5}, "small: input should be a valid integer"),
        ({"small": True}, "small: input should be a valid integer, not true"),
        ({"small": 0}, "small: input should be greater than or equal to 1, not 0"),
        ({"number": "1.5"}, 'number: input should be a valid number, not "1.5"'),
        ({"colour": "green"}, "colour: input should be 'red' or 'blue', not \"green\""),
        ({"mode": "c"}, "mode: input should be 'a' or 'b'"),
        ({"names": "x"}, 'names: input should be a valid array, not "x"'),
        ({"names": ["x", 1]}, "names.1: input should be a valid string, not 1"),
        ({"counts": {"k": "v"}}, "counts.k: input should be a valid integer"),
        ({"point": {"y": 1}}, "point.x is missing"),
        ({"number": None}, "number: input should be a valid number, not null"),
        ({"colours": "red"}, "there is no parameter colours"),
        ({"number": float("nan")}, "NaN, Infinity"),
        ({"either": "\ud800"}, "surrogate pair"),
    ],
)
async def test_wrong_arguments_are_refused_in_words_that_help(wrong, said):
    with pytest.raises(ToolError, match="wrong arguments for everything") as refused:
        await Tool.of(everything)(GOOD | wrong)
    assert said in str(refused.value)
    assert "Its signature: everything(number: number" in str(refused.value)


async def test_a_missing_argument_is_named():
    with pytest.raises(ToolError, match=r"city is missing.*weather\(city: string, days: integer = 1\)"):
        await Tool.of(weather)({})


async def test_too_deep_nesting_is_the_model_s_mistake():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ToolError, match="wrong arguments"):
        await Tool.of(weather)({"city": deep})


async def test_a_long_wrong_argument_is_not_repeated_in_full():
    with pytest.raises(ToolError) as refused:
        await Tool.of(weather)({"city": ["x" * 10_000]})
    assert len(str(refused.value)) < 300


async def test_names_that_pydantic_keeps_for_itself_can_be_parameters():
    async def odd(copy: str, json: str, model_config: str, _hidden: str = "h") -> str:
        return copy + json + model_config + _hidden

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tool = Tool.of(odd)
    assert list(tool.parameters["properties"]) == ["copy", "json", "model_config", "_hidden"]
    assert (await tool({"copy": "a", "json": "b", "model_config": "c"})).content == "abch"


async def test_a_bound_method_is_a_tool_of_its_object():
    class Counter:
        def __init__(self, start):
            self.start = start

        async def add(self, n: int) -> str:
            """Add."""
            return str(self.start + n)

        @classmethod
        async def named(cls, n: int) -> str:
            return cls.__name__ + str(n)

    one, two = Tool.of(Counter(1).add), Tool.of(Counter(2).add)
    assert one.schema == two.schema and one.arguments is two.arguments
    assert [(await tool({"n": 1})).content for tool in (one, two)] == ["2", "3"]
    assert (await Tool.of(Counter.named)({"n": 1})).content == "Counter1"
    with pytest.raises(TypeError, match=r"'add'.*'self'.*method of an object"):
        Tool.of(Counter.add)


async def positional(a: int, /) -> str: ...
async def variable(*names: str) -> str: ...
async def keywords(**options: str) -> str: ...
async def untyped(city) -> str: ...
async def unresolved(city: "Nowhere") -> str: ...  # noqa: F821  # what is tested
async def unserialisable(city: Unknown) -> str: ...
def synchronous(city: str) -> str: ...


async def misdocumented(city: str) -> str:
    """Forecast.

    Args:
        citty: where.
    """


@pytest.mark.parametrize(
    ("function", "parameter"),
    [
        (positional, "a"),
        (variable, "names"),
        (keywords, "options"),
        (untyped, "city"),
        (unresolved, "city"),
        (unserialisable, "city"),
        (misdocumented, "citty"),
        (synchronous, ""),
    ],
)
def test_a_wrong_signature_is_refused_by_the_names_of_tool_and_parameter(function, parameter):
    with pytest.raises(TypeError, match=f"{function.__name__}.*{parameter}"):
        Tool.of(function)


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match="async function"):
        Tool.of(partial(weather, city="Oslo"))


async def test_a_result_that_is_no_text_is_our_mistake():
    async def nothing() -> str:
        return None

    with pytest.raises(TypeError, match="'nothing' must return text"):
        await ToolRegistry([nothing]).execute(ToolCall("nothing", {}))


async def test_a_registry_runs_calls_and_returns_them_with_their_results():
    call = ToolCall("weather", {"city": "Oslo"}, id="1")
    assert await ToolRegistry([weather]).execute(call) == ToolResult("Oslo 1", call=call)


async def test_a_registry_turns_the_model_s_mistakes_into_results():
    async def picky() -> str:
        raise ToolError("not today")

    registry = ToolRegistry([weather, picky])
    refused = await registry.execute(ToolCall("picky", {}))
    assert (refused.content, refused.is_error, refused.done) == ("Error: not today", True, False)
    unknown = await registry.execute(ToolCall("wether", {}))
    assert unknown.is_error and "weather, picky" in unknown.content
    assert (await registry.execute(ToolCall("weather", {"city": 1}))).is_error


async def test_a_result_tells_a_malformed_call_from_a_tool_that_refused():
    async def picky(n: int) -> str:
        raise ToolError("not today")

    registry = ToolRegistry([picky])
    calls = [ToolCall("picky", {"n": 1}), ToolCall("picky", {"n": "1"}), ToolCall("piccy", {"n": 1})]
    assert [(await registry.execute(call)).malformed for call in calls] == [False, True, True]


async def test_a_registry_raises_what_is_not_the_model_s_mistake():
    async def broken() -> str:
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        await ToolRegistry([broken]).execute(ToolCall("broken", {}))


async def test_what_has_ended_its_sandbox_is_told_that():
    async def hog() -> str:
        raise SandboxEnded("the sandbox has ended, at the limit of its memory", "memory")

    result = await ToolRegistry([hog]).execute(ToolCall("hog", {}))
    assert (result.is_error, result.malformed) == (True, False)
    assert "limit of its memory" in result.content


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(ValueError, match="weather"):
        ToolRegistry([weather, Tool.of(weather)])


def test_the_registry_keeps_its_order():
    registry = ToolRegistry([everything, weather])
    assert registry.names == ["everything", "weather"]
    assert [schema["function"]["name"] for schema in registry.schemas] == registry.names
    assert [tool.name for tool in registry] == registry.names and len(registry) == 2


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("weather", '{"city": "Oslo"', "are no JSON: "),
        ("weather", "[" * 100_000, "are no JSON: "),
        ("weather", "[1]", "are no JSON object"),
        ("weather", "", "city is missing"),
        ("python", "{}", "unknown tool 'python'; the tools are weather"),
    ],
)
async def test_a_wrong_call_in_openais_form_is_text_for_the_model(name, arguments, said):
    registry = ToolRegistry([weather])
    assert await registry.answer("weather", '{"city": "Oslo"}') == "Oslo 1"
    answer = await registry.answer(name, arguments)
    assert answer.startswith("Error: ") and said in answer
