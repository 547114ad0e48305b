"""Arguments as bare text, with types from the tools' schemas: the shared part of the XML formats."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from atropos_agent.formats.base import ToolFormat
from atropos_agent.formats.reading import SPACE, read_json, write_json
from tools.base import ToolCall

_ANY = frozenset({"string", "number", "integer", "boolean", "null", "array", "object"})
_TEXT = frozenset({"string"})
_NONE: frozenset[str] = frozenset()
_MOST = 256
"""Most schemas of one tool, or of one argument, to look into: they may hold themselves, and many others."""
_WORDS = {"True": True, "False": False, "None": None}
"""Python's words, which the models' own templates write for JSON's."""


class ArgumentTypes:
    """Types of the arguments of tools, from schemas in OpenAI's function format.

    prefer_json: an argument without any schema is JSON if it can be, else it is text; if one may
        be text and something else, a JSON string stands for the text in its quotes, else for itself.
    """

    def __init__(self, schemas: Sequence[Mapping[str, Any]] = (), *, prefer_json: bool = False) -> None:
        self._prefer_json = prefer_json
        self._allowed: dict[tuple[str, str], frozenset[str]] = {}
        self._texts: dict[tuple[str, str], set[str]] = {}
        for schema in schemas:
            function = schema.get("function", schema)
            parameters = function.get("parameters") or {}
            for key, wanted in _properties(parameters, parameters, set()):
                place = function.get("name", ""), key
                self._allowed[place] = self._allowed.get(place, _NONE) | allowed_types(wanted, parameters)
                self._texts.setdefault(place, set()).update(listed_texts(wanted))

    def keys(self, tool: str) -> set[str]:
        """Return the names of a tool's arguments."""
        return {key for name, key in self._allowed if name == tool}

    def value(self, tool: str, key: str, text: str) -> Any:
        """Return the argument that a text stands for: text if it may be nothing else, else JSON.

        If an argument may be text and something else, JSON of the other type is no text, unless the schema lists
        the text itself. Raises ValueError."""
        allowed = self._allowed.get((tool, key), _ANY)
        return typed_value(key, text, allowed, self._texts.get((tool, key), ()), prefer_json=self._prefer_json)

    def end_of_json(self, tool: str, key: str, text: str, start: int) -> int:
        """Return the place after the JSON of an argument that is no text: a closing tag in one of its strings is none.

        It is `start` if the argument may be text, or without JSON."""
        if "string" in self._allowed.get((tool, key), _ANY):
            return start
        try:
            return read_json(text, start)[1]
        except ValueError:
            return start

    def text(self, tool: str, key: str, value: Any) -> str:
        """Return an argument as text that `value` reads back. Raises ValueError if there is none."""
        text = value if isinstance(value, str) else write_json(value)
        try:
            same = self.value(tool, key, text)
        except ValueError:
            same = None if value is not None else ""
        if type(same) is not type(value) or same != value:
            raise ValueError(f"the argument {key!r} can't be told from text of another type: {text!r}")
        return text


def typed_value(
    key: str, text: str, allowed: frozenset[str], listed: Collection[str], *, prefer_json: bool = False
) -> Any:
    """Return the value that a text stands for: see `ArgumentTypes`. Raises ValueError.

    allowed: JSON's names for its types. listed: texts that the schema lists."""
    if allowed == _ANY and not prefer_json:
        allowed = _TEXT
    if allowed == _TEXT or text in listed:
        return text
    try:
        value = _json(text.strip())
    except ValueError:
        if "string" in allowed:
            return text
        raise ValueError(f"the argument {key!r} is not {' or '.join(sorted(allowed))}, written as JSON") from None
    if type_of(value) & (allowed if prefer_json else allowed - _TEXT):
        return value
    if "string" in allowed:
        return text
    raise ValueError(f"the argument {key!r} must be {' or '.join(sorted(allowed))}")


def end_of_value(text: str, start: int, closing: str, followers: tuple[str, ...]) -> int:
    """Return the place of a value's closing tag: the first after which the call goes on or ends.

    Others are text of the value. Raises ValueError if there is none."""
    if (end := _closing_pattern(closing, followers).search(text, start)) is not None:
        return end.start()
    raise ValueError("an argument of the call is not closed")


@cache
def _closing_pattern(closing: str, followers: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"{re.escape(closing)}(?=[{SPACE}]*+(?:{'|'.join(map(re.escape, followers))}))")


def checked(tool_format: ToolFormat, call: ToolCall, text: str) -> str:
    """Return the text of a call. Raises ValueError if its names or arguments spell tags: it would be another call."""
    read = tool_format.parse(text)
    if read.problems or [(one.name, one.arguments) for one in read.calls] != [(call.name, dict(call.arguments))]:
        raise ValueError(f"a call of {call.name!r} can't be written: its names or arguments hold the format's tags")
    return text


def _json(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    value, end = read_json(text, 0)
    if end != len(text):
        raise ValueError("there is text after the value")
    return value


_TYPES: tuple[tuple[type, frozenset[str]], ...] = (
    (bool, frozenset({"boolean"})),
    (int, frozenset({"integer", "number"})),
    (float, frozenset({"number"})),
    (str, frozenset({"string"})),
    (list, frozenset({"array"})),
    (dict, frozenset({"object"})),
)
"""JSON's names for values of Python's types; bool before int, because a bool is an int."""


def type_of(value: Any) -> frozenset[str]:
    """Return JSON's names for the type of a value."""
    if isinstance(value, float) and value.is_integer():
        return frozenset({"integer", "number"})
    return next((names for kind, names in _TYPES if isinstance(value, kind)), frozenset({"null"}))


def _properties(schema: Any, root: Mapping[str, Any], seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield the arguments that parameters name, in all of their alternatives, each with its schema. seen: ids of the
    schemas looked into."""
    if isinstance(schema, Mapping) and id(schema) not in seen and len(seen) <= _MOST:
        seen.add(id(schema))
        yield from properties_of(schema).items()
        branches = [one for word in ("anyOf", "oneOf", "allOf") for one in _list(schema.get(word))]
        for branch in [*_resolve_reference(schema, root), *branches]:
            yield from _properties(branch, root, seen)


def _allowed(schema: Any, root: Mapping[str, Any], seen: dict[int, frozenset[str]]) -> frozenset[str]:
    """Return the JSON types that a schema lets a value have. root: holds `$defs`. seen: the types of other schemas, by
    their ids."""
    if not isinstance(schema, Mapping) or len(seen) > _MOST:
        return _ANY
    if id(schema) in seen:
        return seen[id(schema)]
    allowed = seen[id(schema)] = _ANY
    implied = "object" if "properties" in schema else "array" if "items" in schema else None
    named = schema.get("type") or implied
    if names := {one for one in ([named] if isinstance(named, str) else _list(named)) if isinstance(one, str)}:
        allowed = frozenset(names | {"integer"} if "number" in names else names)
    if values := _values(schema):
        allowed &= _NONE.union(*map(type_of, values))
    for word in ("anyOf", "oneOf"):
        if others := _list(schema.get(word)):
            allowed &= _NONE.union(*(_allowed(one, root, seen) for one in others))
    for one in [*_resolve_reference(schema, root), *_list(schema.get("allOf"))]:
        allowed &= _allowed(one, root, seen)
    seen[id(schema)] = allowed or _ANY
    return seen[id(schema)]


def allowed_types(schema: Any, root: Any) -> frozenset[str]:
    """Return the JSON types that a schema lets a value have. root: holds `$defs`."""
    return _allowed(schema, root, {})


def listed_texts(schema: Any) -> set[str]:
    """Return the texts that a schema lists as its values."""
    return {one for one in _values(schema) if isinstance(one, str)}


def container_of(schema: Any, root: Any) -> Mapping[str, Any] | None:
    """Return a schema's first alternative that is an object or a list; None without one. root: holds `$defs`."""
    schemas, seen = [schema], set[int]()
    for one in schemas:
        if not isinstance(one, Mapping) or id(one) in seen or len(seen) > _MOST:
            continue
        seen.add(id(one))
        named = one.get("type")
        if not {"object", "array"}.isdisjoint([named] if isinstance(named, str) else map(str, _list(named))):
            return one
        if named is None and not {"items", "properties", "additionalProperties"}.isdisjoint(one):
            return one
        schemas += [
            *_resolve_reference(one, root),
            *(other for word in ("anyOf", "oneOf", "allOf") for other in _list(one.get(word))),
        ]
    return None


def properties_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parts that a schema names, with their schemas; none if it names none."""
    found = schema.get("properties")
    return found if isinstance(found, Mapping) else {}


def _values(schema: Any) -> Sequence[Any]:
    """Return the values that a schema lists; none if it lists none."""
    if not isinstance(schema, Mapping):
        return ()
    return [schema["const"]] if "const" in schema else _list(schema.get("enum"))


def _list(value: Any) -> Sequence[Any]:
    """Return a list; an empty one for agents' other values in its place."""
    return value if isinstance(value, list | tuple) else ()


def _resolve_reference(schema: Mapping[str, Any], root: Any) -> Sequence[Any]:
    """Return the target of a schema's reference, such as `#/$defs/Name`; nothing without one."""
    if not isinstance(reference := schema.get("$ref"), str):
        return ()
    for part in reference.split("/")[1:]:
        root = root.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(root, Mapping) else None
    return (root,)
