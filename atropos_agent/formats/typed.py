"""Arguments as bare text, told from each other's types by the tools' schemas: what the XML formats share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atropos_agent.formats.base import ToolFormat
from atropos_agent.formats.reading import read_json, skip_space, written_json
from tools.base import ToolCall

_ANY = frozenset({"string", "number", "integer", "boolean", "null", "array", "object"})
_WORDS = {"True": True, "False": False, "None": None}
"""Python's words, which the models' own templates write for JSON's."""


class ArgumentTypes:
    """Of the arguments of tools given by schemas in OpenAI's function format. Arguments of no known tool are text."""

    def __init__(self, schemas: Sequence[Mapping[str, Any]] = ()) -> None:
        self._allowed: dict[tuple[str, str], frozenset[str]] = {}
        for schema in schemas:
            function = schema.get("function", schema)
            parameters = function.get("parameters") or {}
            for key, wanted in (parameters.get("properties") or {}).items():
                self._allowed[function.get("name", ""), key] = _allowed(wanted, parameters, 0)

    def value(self, tool: str, key: str, text: str) -> Any:
        """Return the argument that a text stands for: text where it may be nothing else, else JSON.

        Where an argument may be text and something else, JSON of the other type is no text. Raises ValueError."""
        allowed = self._allowed.get((tool, key), frozenset({"string"}))
        if allowed == {"string"}:
            return text
        try:
            value = _json(text.strip())
        except ValueError:
            if "string" in allowed:
                return text
            raise ValueError(f"the argument {key!r} is not {' or '.join(sorted(allowed))}, written as JSON") from None
        if _type_of(value) & allowed - {"string"}:
            return value
        if "string" in allowed:
            return text
        raise ValueError(f"the argument {key!r} must be {' or '.join(sorted(allowed))}")

    def text(self, tool: str, key: str, value: Any) -> str:
        """Return an argument as text that `value` reads back. Raises ValueError where there is none."""
        text = value if isinstance(value, str) else written_json(value)
        try:
            same = self.value(tool, key, text)
        except ValueError:
            same = None if value is not None else ""
        if type(same) is not type(value) or same != value:
            raise ValueError(f"the argument {key!r} can't be told from text of another type: {text!r}")
        return text


def end_of_value(text: str, start: int, closing: str, followers: tuple[str, ...]) -> int:
    """Return where the closing tag of a value stands: the first behind which the call goes on or ends.

    Others are text of the value. Raises ValueError where there is none."""
    end = text.find(closing, start)
    while end >= 0:
        if text.startswith(followers, skip_space(text, end + len(closing))):
            return end
        end = text.find(closing, end + 1)
    raise ValueError("an argument of the call is not closed")


def checked(tool_format: ToolFormat, call: ToolCall, text: str) -> str:
    """Return the text of a call. Raises ValueError where its names or arguments spell tags, so that it is another."""
    read = tool_format.parse(text)
    if read.problems or [(one.name, one.arguments) for one in read.calls] != [(call.name, dict(call.arguments))]:
        raise ValueError(f"a call of {call.name!r} can't be written: its names or arguments hold the format's tags")
    return text


def _json(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    value, end = read_json(text, 0)
    if end != len(text):
        raise ValueError("there is text behind the value")
    return value


_TYPES: tuple[tuple[type, frozenset[str]], ...] = (
    (bool, frozenset({"boolean"})),
    (int, frozenset({"integer", "number"})),
    (float, frozenset({"number"})),
    (str, frozenset({"string"})),
    (list, frozenset({"array"})),
    (dict, frozenset({"object"})),
)
"""What JSON calls values of Python's types; bool before int, whose kind it is."""


def _type_of(value: Any) -> frozenset[str]:
    return next((names for kind, names in _TYPES if isinstance(value, kind)), frozenset({"null"}))


def _allowed(schema: Any, root: Mapping[str, Any], depth: int) -> frozenset[str]:
    """Return the JSON types that a schema lets a value have. root: holds `$defs`."""
    if not isinstance(schema, Mapping) or depth > 20:
        return _ANY
    if "const" in schema or "enum" in schema:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        return frozenset().union(*map(_type_of, values))
    others = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
    if isinstance(reference := schema.get("$ref"), str):
        others = [(root.get("$defs") or {}).get(reference.rpartition("/")[2])]
    if others:
        return frozenset().union(*(_allowed(one, root, depth + 1) for one in others))
    named = schema.get("type")
    names = {named} if isinstance(named, str) else set(named or _ANY)
    return frozenset(names | {"integer"} if "number" in names else names)
