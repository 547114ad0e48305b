"""The format of GLM 4.5 and later: a tag for each argument's name and one for its value.

Text stands bare, everything else as JSON; the tool's schema says which it is. A literal closing tag in a JSON string is
text, in a text as long as no other tag of the call follows it.

Format: the chat templates of GLM-4.5 and GLM-4.7; the second leaves the line breaks out. As in vLLM's and
SGLang's parsers, an argument without a schema is JSON if it can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atropos_agent.formats.reading import Read, Section, TaggedFormat, expect, first_of, skip_space
from atropos_agent.formats.typed import ArgumentTypes, checked, end_of_value
from atropos_agent.types import THINK, THINK_END
from tools.base import ToolCall

CALL, CALL_END = "<tool_call>", "</tool_call>"
KEY, KEY_END = "<arg_key>", "</arg_key>"
VALUE, VALUE_END = "<arg_value>", "</arg_value>"


class Glm(TaggedFormat):
    """The training format of GLM 4.5, 4.6 and 4.7 models."""

    opening, closing = CALL, CALL_END
    inner = (KEY, KEY_END, VALUE, VALUE_END)
    control = (CALL, CALL_END, KEY, KEY_END, VALUE, VALUE_END, "<tool_response>", "</tool_response>", THINK, THINK_END)
    frame = ("<tool_response>\n", "\n</tool_response>")
    shape = f"{CALL}<tool name>\n{KEY}<argument>{KEY_END}\n{VALUE}<value>{VALUE_END}\n{CALL_END}"

    def __init__(self, schemas: Sequence[Mapping[str, Any]] = ()) -> None:
        self._types = ArgumentTypes(schemas, prefer_json=True)

    def with_tools(self, schemas: Sequence[Mapping[str, object]]) -> Glm:
        return Glm(schemas)

    def read(self, text: str, start: int) -> Section:
        tag = first_of(text, skip_space(text, start), "\n", KEY, CALL_END)
        place = len(text) if tag is None else tag.start()
        name = text[start:place].strip()
        if not name or "<" in name:
            raise ValueError("the call does not begin with a tool's name")
        arguments: dict[str, Any] = {}
        while not text.startswith(CALL_END, place := skip_space(text, place)):
            place = expect(text, place, KEY, f"the call holds something else than {KEY} and {VALUE} tags, or no end")
            end = text.find(KEY_END, place)
            key = text[place:end].strip() if end >= 0 else ""
            if not key or "<" in key:
                raise ValueError(f"an argument's name is empty, or not closed with {KEY_END}")
            place = expect(text, end + len(KEY_END), VALUE, f"no {VALUE} stands behind the argument {key!r}")
            end = end_of_value(text, self._types.behind_json(name, key, text, place), VALUE_END, (KEY, CALL_END))
            if key in arguments:
                raise ValueError(f"the argument {key!r} is there twice")
            arguments[key] = self._types.value(name, key, text[place:end])
            place = end + len(VALUE_END)
        return Section(place + len(CALL_END), [Read(name, arguments)])

    def write(self, call: ToolCall) -> str:
        written = "".join(
            f"{KEY}{key}{KEY_END}\n{VALUE}{self._types.text(call.name, key, value)}{VALUE_END}\n"
            for key, value in call.arguments.items()
        )
        return checked(self, call, f"{CALL}{call.name}\n{written}{CALL_END}")
