"""The format of MiniMax M3: an element for each argument, with elements in it for the parts of objects and lists.

Text stands bare, everything else as in JSON; the tool's schema says which it is. As in vLLM's `minimax_m3`, an element
without a schema is text, or an object, in which elements of one name are a list. A null has no element.

Format: the chat template of MiniMax-M3. A mark stands before each tag, so tags without it are text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atropos_agent.formats.invoke import InvokeFormat, read_quoted_name
from atropos_agent.formats.reading import DEEPEST, Read, expect, skip_space, write_json
from atropos_agent.formats.typed import allowed_types, container_of, listed_texts, properties_of, typed_value
from atropos_agent.types import Reply
from tools.base import ToolCall

MARK = "]<]minimax[>["


class MiniMaxM3(InvokeFormat):
    """The training format of MiniMax M3 models."""

    opening, closing = f"{MARK}<tool_call>", f"{MARK}</tool_call>"
    call, call_end = f'{MARK}<invoke name="', f"{MARK}</invoke>"
    thinking = ("<mm:think>", "</mm:think>")
    inner = (MARK,)
    control = (opening, closing, MARK, *thinking)
    frame = ("<response>", "</response>")
    channelled = True
    shape = f'{opening}\n{call}<tool name>">{MARK}<argument><value>{MARK}</argument>{call_end}\n{closing}'

    def __init__(self, schemas: Sequence[Mapping[str, Any]] = ()) -> None:
        functions = [schema.get("function", schema) for schema in schemas]
        self._parameters = {function.get("name"): function.get("parameters") or {} for function in functions}

    def with_tools(self, schemas: Sequence[Mapping[str, object]]) -> MiniMaxM3:
        return MiniMaxM3(schemas)

    def read_one(self, text: str, start: int) -> tuple[Read, int]:
        name, place = read_quoted_name(text, start)
        place = expect(text, place, ">", f"the tag with the tool's name {name!r} is not closed")
        root = self._parameters.get(name, {})
        properties = properties_of(container_of(root, root) or {})
        arguments: dict[str, Any] = {}
        while not text.startswith(self.call_end, place := skip_space(text, place)):
            key, content, place = _element(text, place)
            if key in arguments:
                raise ValueError(f"the argument {key!r} is there twice")
            arguments[key] = _value(key, content, properties.get(key), root)
        return Read(name, arguments), place + len(self.call_end)

    def turn(self, reply: Reply) -> str:
        # A closing tag by itself says that there is no thinking.
        think, think_end = self.thinking
        thought = f"{think}{reply.thinking}{think_end}" if reply.thinking else think_end
        return f"{'' if reply.thinking is None else thought}{reply.content}{self.write_all(reply.calls)}"

    def write_call(self, call: ToolCall, number: int) -> str:
        text = f'{self.call}{call.name}">{_write_value(call.arguments)}{self.call_end}'
        read, _ = self.read_one(text, len(self.call))
        if (read.name, write_json(read.arguments)) != (call.name, write_json(dict(call.arguments))):
            raise ValueError(f"a call of {call.name!r} can't be written: by its tool's schema it would be another")
        return text


def _element(text: str, start: int, depth: int = 0) -> tuple[str, Any, int]:
    """Read the element at `start`; return its name, its content and the place after it. Raises ValueError."""
    place = expect(text, start, f"{MARK}<", f"the call holds something else than elements in {MARK}<…> tags")
    end = text.find(">", place, place + 1000)
    name = text[place:end] if end >= 0 else ""
    if not name.strip() or name.startswith("/") or "<" in name or depth > DEEPEST:
        raise ValueError("an element's name is missing or not closed, or its nesting is too deep")
    place, closing = end + 1, f"{MARK}</{name}>"
    elements: list[tuple[str, Any]] = []
    while (found := text.find(MARK, place)) >= 0:
        between = text[place:found]
        if elements and between.strip():
            break
        if text.startswith(closing, found):
            return name, elements or between, found + len(closing)
        if between.strip():
            break
        key, content, place = _element(text, found, depth + 1)
        elements.append((key, content))
    raise ValueError(f"the element {name!r} is not closed, or holds text beside elements")


def _value(key: str, content: Any, schema: Any, root: Any) -> Any:
    """Return the value of an element's content by its schema. Raises ValueError."""
    container = container_of(schema, root) or {}
    is_list = "items" in container or "array" in (container.get("type") or ())
    if isinstance(content, str):
        allowed = allowed_types(schema, root)
        if container and "string" not in allowed and not content.strip():
            return [] if is_list else {}
        return typed_value(key, content, allowed, listed_texts(schema))
    if is_list:
        return [_value(key, inner, container.get("items"), root) for _, inner in content]
    properties, others = properties_of(container), container.get("additionalProperties")
    found: dict[str, list[Any]] = {}
    for name, inner in content:
        found.setdefault(name, []).append(_value(name, inner, properties.get(name, others), root))
    return {name: values if len(values) > 1 else values[0] for name, values in found.items()}


def _write_value(value: Any) -> str:
    match value:
        case Mapping():
            parts = [(key, one) for key, one in value.items() if one is not None]
        case list() | tuple():
            parts = [("item", one) for one in value]
        case _:
            return "" if value is None else value if isinstance(value, str) else write_json(value)
    return "".join(f"{MARK}<{key}>{_write_value(one)}{MARK}</{key}>" for key, one in parts)
