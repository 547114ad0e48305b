"""The parts of a tool: a call, its result, the function behind it, and the registry that runs calls.

A tool is an async function with typed parameters and a docstring. The docstring's first paragraph
is the tool's description, an `Args:` section describes the parameters, and the schema for the
model is made of both; every other paragraph is for people. Keep both short: they stand in
every prompt::

    async def weather(city: str, days: int = 1) -> str:
        '''Forecast the weather.

        Args:
            city: where, for example "Oslo".
            days: how many days ahead.
        '''

It returns text for the model, or a `ToolResult` when it has more to say. It raises `ToolError`
for the model's mistakes, and its message is shown to the model; any other exception is an
infrastructure failure and ends the rollout.
"""

from __future__ import annotations

import copy
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic_core import ErrorDetails

from sandboxes.base import SandboxEnded
from sandboxes.signatures import signature_of

ToolFunction = Callable[..., Awaitable["str | ToolResult"]]


class ToolError(Exception):
    """The model's mistake. The message is shown to it and should say what to do instead."""


class MalformedCall(ToolError):
    """A call of a missing tool, or with arguments unknown to the tool."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call made by the model. `id` is unique within its rollout; `arguments` is decoded JSON."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The message to the model. `done` ends the rollout with `content` as its final response.

    malformed: the call named no tool, or had arguments that the tool does not take.
    metadata: for logs and metrics, such as an exit code; the model does not see it."""

    content: str
    is_error: bool = False
    done: bool = False
    call: ToolCall | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    malformed: bool = False


@dataclass(frozen=True, slots=True)
class Tool:
    """An async function with the JSON schema of its parameters.

    arguments: checks a call; its fields are aliased to the parameters' names. None: somebody else checks it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: ToolFunction
    arguments: type[BaseModel] | None

    @classmethod
    def of(cls, function: ToolFunction) -> Tool:
        """Make a tool of a function or a bound method.

        Raises TypeError, which names the tool and the parameter, when its signature can't be a schema."""
        # Methods of different objects share one schema, so it is made of the function beneath.
        beneath = function.__func__ if inspect.ismethod(function) else function
        name, description, parameters, arguments = _describe(beneath, inspect.ismethod(function))
        return cls(name, description, parameters, function, arguments)

    @property
    def schema(self) -> dict[str, Any]:
        """Return the tool in OpenAI's function format, as a copy: the caller may change it."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": copy.deepcopy(dict(self.parameters)),
            },
        }

    @property
    def signature(self) -> str:
        """Return the tool in one line, such as `weather(city: string, days: integer = 1)`."""
        required = self.parameters["required"]
        parts = [
            f"{name}: {_type_of(prop)}" + ("" if name in required else f" = {json.dumps(prop.get('default'))}")
            for name, prop in self.parameters["properties"].items()
        ]
        return f"{self.name}({', '.join(parts)})"

    async def __call__(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Check the arguments against the schema and run the function.

        Raises ToolError for the model's mistakes, wrong arguments among them."""
        result = await self.function(**self._validate(arguments))
        if isinstance(result, str):
            return ToolResult(result)
        if not isinstance(result, ToolResult):
            raise TypeError(f"tool {self.name!r} must return text or a ToolResult, not {type(result).__name__}")
        return result

    def _validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if self.arguments is None:
            return dict(arguments)
        try:
            # Checked as JSON, not as Python values: a string may then stand for an enum or a path and
            # a list for a tuple, as the schema promises, but "5" still is no number.
            parsed = self.arguments.model_validate_json(json.dumps(dict(arguments), allow_nan=False), strict=True)
        except ValidationError as error:
            problems = "; ".join(_describe_problem(details) for details in error.errors())
        except (ValueError, RecursionError):
            problems = "NaN, Infinity or too deep nesting"
        else:
            fields = type(parsed).model_fields
            return {str(info.alias): getattr(parsed, name) for name, info in fields.items()}
        raise MalformedCall(f"wrong arguments for {self.name}: {problems}. Its signature: {self.signature}")


class ToolRegistry:
    """The tools of one rollout, in the order shown to the model."""

    def __init__(self, tools: Iterable[Tool | ToolFunction] = ()) -> None:
        """Take the tools. Raises ValueError when two tools share a name, TypeError when one can't be a tool."""
        self._tools: dict[str, Tool] = {}
        for item in tools:
            tool = item if isinstance(item, Tool) else Tool.of(item)
            if tool.name in self._tools:
                raise ValueError(f"two tools are named {tool.name!r}; rename one of them")
            self._tools[tool.name] = tool

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    @property
    def names(self) -> list[str]:
        return list(self._tools)

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """Return every tool in OpenAI's function format."""
        return [tool.schema for tool in self._tools.values()]

    async def execute(self, call: ToolCall) -> ToolResult:
        """Run a call. The model's mistakes come back as results with `is_error`, and so does the end of the sandbox
        if the model's command has caused it; any other exception is an infrastructure failure and is raised."""
        tool = self._tools.get(call.name)
        try:
            if tool is None:
                raise MalformedCall(f"unknown tool {call.name!r}; the tools are {', '.join(self._tools) or 'none'}")
            result = await tool(call.arguments)
        except ToolError as error:
            malformed = isinstance(error, MalformedCall)
            result = ToolResult(f"Error: {error}", is_error=True, malformed=malformed)
        except SandboxEnded as error:
            result = ToolResult(f"Error: {error}", is_error=True)
        return replace(result, call=call)

    async def answer(self, name: str, arguments: str) -> str:
        """Run a call in OpenAI's form, with its arguments as JSON. Returns the text for the model, also about its
        mistakes; see `execute`."""
        try:
            given = json.loads(arguments or "{}")
        except (ValueError, RecursionError) as error:
            return f"Error: the arguments of {name} are no JSON: {error}"
        if not isinstance(given, dict):
            return f"Error: the arguments of {name} are no JSON object"
        return (await self.execute(ToolCall(name, given))).content


# Bounded, because tools may be new closures of each rollout.
@lru_cache(maxsize=128)
def _describe(function: ToolFunction, bound: bool) -> tuple[str, str, dict[str, Any], type[BaseModel]]:
    """Return a function's name, description and JSON schema, and the pydantic model that checks its arguments."""
    name = getattr(function, "__name__", type(function).__name__)
    if not inspect.iscoroutinefunction(function) or not inspect.isfunction(function):
        raise TypeError(f"tool {name!r} must be an async function or an async method")
    description, documented = _split_docstring(inspect.getdoc(function) or "")
    signature = list(signature_of(function).parameters.values())[1 if bound else 0 :]
    fields: dict[str, Any] = {}
    for place, parameter in enumerate(signature):
        where = f"tool {name!r}: parameter {parameter.name!r}"
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"{where} must be passable by name")
        hint = _resolve_type(function, parameter, where)
        default = ... if parameter.default is parameter.empty else parameter.default
        # An alias, because pydantic refuses some names that are fine for a parameter ("copy", "_x").
        options: dict[str, Any] = {"alias": parameter.name}
        if parameter.name in documented:
            options["description"] = documented.pop(parameter.name)
        fields[f"p{place}"] = (hint, Field(default, **options))
    if documented:
        raise TypeError(f"tool {name!r}: its docstring describes {', '.join(documented)}, which it does not take")
    model = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
    return name, description, _parameters(model), model


def _resolve_type(function: ToolFunction, parameter: inspect.Parameter, where: str) -> Any:
    """Return a parameter's type, after checking that a schema can describe it. Raises TypeError."""
    if parameter.annotation is parameter.empty:
        hint = " (pass the method of an object)" if parameter.name in ("self", "cls") else ""
        raise TypeError(f"{where} needs a type annotation{hint}")
    holder = type("holder", (), {"__annotations__": {parameter.name: parameter.annotation}})
    namespace = inspect.unwrap(function).__globals__
    try:
        hint = inspect.get_annotations(holder, globals=namespace, eval_str=True)[parameter.name]
        TypeAdapter(hint).json_schema()
    except (NameError, SyntaxError, PydanticUserError) as error:
        reason = str(error).splitlines()[0]
        raise TypeError(f"{where} needs a type that JSON can carry, not {parameter.annotation}: {reason}") from error
    return hint


def _parameters(model: type[BaseModel]) -> dict[str, Any]:
    """Return a model's JSON schema, without parts that only cost prompt tokens."""
    schema = model.model_json_schema()
    properties: dict[str, Any] = schema.get("properties", {})
    for prop in properties.values():
        prop.pop("title", None)
        # `X | None = None` is shown as an optional X; null is accepted all the same.
        options = [option for option in prop.get("anyOf", ()) if option != {"type": "null"}]
        if len(options) == 1 and "default" in prop and prop["default"] is None:
            del prop["anyOf"], prop["default"]
            prop.update({key: value for key, value in options[0].items() if key not in prop})
    parameters = {"type": "object", "properties": properties, "required": schema.get("required", [])}
    if "$defs" in schema:
        parameters["$defs"] = schema["$defs"]
    return parameters


def _type_of(prop: Mapping[str, Any]) -> str:
    if "enum" in prop or "const" in prop:
        return " | ".join(json.dumps(value) for value in prop.get("enum", [prop.get("const")]))
    if "anyOf" in prop:
        return " | ".join(_type_of(option) for option in prop["anyOf"])
    return str(prop.get("type", "object"))


def _describe_problem(details: ErrorDetails) -> str:
    """Describe one wrong argument: the expected value and the given one."""
    where = ".".join(map(str, details["loc"])) or "arguments"
    if details["type"] == "missing":
        return f"{where} is missing"
    if details["type"] == "extra_forbidden":
        return f"there is no parameter {where}"
    if details["type"] == "json_invalid":
        # It was written by json.dumps, so that nothing else can be wrong with it.
        return "half of a surrogate pair, which is no text, or too deep nesting"
    given = json.dumps(details["input"], ensure_ascii=False, default=str)
    given = given if len(given) <= 60 else given[:60] + "..."
    return f"{where}: {details['msg'][:1].lower()}{details['msg'][1:]}, not {given}"


def _split_docstring(doc: str) -> tuple[str, dict[str, str]]:
    """Return a docstring's first paragraph, and each argument's description."""
    match = re.search(r"^Args:[ ]*\n", doc, re.MULTILINE)
    text, section = (doc[: match.start()], doc[match.end() :]) if match else (doc, "")
    arguments: dict[str, str] = {}
    current, indent = "", 0
    for line in section.splitlines():
        depth = len(line) - len(line.lstrip())
        if not line.strip():
            continue
        if depth == 0:
            break
        indent = indent or depth
        head = re.match(r"(\w+)(?: \([^)]*\))?:(.*)", line.strip()) if depth == indent else None
        if head:
            current = head[1]
            arguments[current] = head[2].strip()
        elif current:
            arguments[current] += " " + line.strip()
    return " ".join(text.strip().partition("\n\n")[0].split()), arguments
