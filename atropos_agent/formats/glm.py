"""The format of GLM 4.5 and later, and of Hy3: a tag for each argument's name and one for its value.

Text stands bare, everything else as JSON; the tool's schema says which it is. A literal closing tag in a JSON string is
text, in a text as long as no other tag of the call follows it.

Formats: the chat templates of GLM-4.5 and GLM-4.7, of which the second leaves the line breaks out, and of Hy3. As in
vLLM's and SGLang's parsers, an argument without a schema is JSON if it can be; in Hy3's it is text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atropos_agent.formats.reading import Read, expect, first_of, skip_space
from atropos_agent.formats.sections import SectionFormat
from atropos_agent.formats.typed import ArgumentTypes, checked, end_of_value
from atropos_agent.types import THINK, THINK_END
from tools.base import ToolCall

CALL, CALL_END = "<tool_call>", "</tool_call>"
KEY, KEY_END = "<arg_key>", "</arg_key>"
VALUE, VALUE_END = "<arg_value>", "</arg_value>"


class Glm(SectionFormat):
    """The training format of GLM 4.5, 4.6 and 4.7 models.

    argument: the tags around an argument's name and around its value. name_end: comes after the tool's name."""

    opening, closing = CALL, CALL_END
    call, call_end = CALL, CALL_END
    argument = (KEY, KEY_END, VALUE, VALUE_END)
    name_end = between = "\n"
    inner: Sequence[str] = argument
    control: Sequence[str] = (CALL, CALL_END, *argument, "<tool_response>", "</tool_response>", THINK, THINK_END)
    frame = ("<tool_response>\n", "\n</tool_response>")
    shape = f"{CALL}<tool name>\n{KEY}<argument>{KEY_END}\n{VALUE}<value>{VALUE_END}\n{CALL_END}"
    prefer_json = True

    def __init__(self, schemas: Sequence[Mapping[str, Any]] = ()) -> None:
        self._types = ArgumentTypes(schemas, prefer_json=self.prefer_json)

    def with_tools(self, schemas: Sequence[Mapping[str, object]]) -> Glm:
        return type(self)(schemas)

    def read_one(self, text: str, start: int) -> tuple[Read, int]:
        before, key_end, value, value_end = self.argument
        tag = first_of(text, skip_space(text, start), self.name_end, before, self.call_end)
        place = len(text) if tag is None else tag.start()
        name = text[start:place].strip()
        if not name or "<" in name:
            raise ValueError("the call does not begin with a tool's name")
        place = expect(text, place, self.name_end.strip(), f"no {self.name_end} comes after the tool's name")
        arguments: dict[str, Any] = {}
        while not text.startswith(self.call_end, place := skip_space(text, place)):
            place = expect(
                text, place, before, f"the call holds something else than {before} and {value} tags, or no end"
            )
            end = text.find(key_end, place)
            key = text[place:end].strip() if end >= 0 else ""
            if not key or "<" in key:
                raise ValueError(f"an argument's name is empty, or not closed with {key_end}")
            place = expect(text, end + len(key_end), value, f"no {value} comes after the argument {key!r}")
            behind = self._types.end_of_json(name, key, text, place)
            end = end_of_value(text, behind, value_end, (before, self.call_end))
            if key in arguments:
                raise ValueError(f"the argument {key!r} is there twice")
            arguments[key] = self._types.value(name, key, text[place:end])
            place = end + len(value_end)
        return Read(name, arguments), place + len(self.call_end)

    def write(self, call: ToolCall) -> str:
        return checked(self, call, self.write_all([call]))

    def write_call(self, call: ToolCall, number: int) -> str:
        key, key_end, value, value_end = self.argument
        given = "".join(
            f"{key}{name}{key_end}\n{value}{self._types.text(call.name, name, one)}{value_end}\n"
            for name, one in call.arguments.items()
        )
        return f"{self.call}{call.name}{self.name_end}{given}{self.call_end}"


class Hy3(Glm):
    """The training format of Hunyuan 3 models: GLM's calls in a section, with a mark after each tag's name.

    As in vLLM's `hy_v3`, an argument without a schema is text."""

    opening, closing = "<tool_calls:opensource>", "</tool_calls:opensource>"
    call, call_end = "<tool_call:opensource>", "</tool_call:opensource>"
    argument = (
        *("<arg_key:opensource>", "</arg_key:opensource>"),
        *("<arg_value:opensource>", "</arg_value:opensource>"),
    )
    name_end = "<tool_sep:opensource>"
    thinking = ("<think:opensource>", "</think:opensource>")
    channelled = True
    inner = (call, call_end, *argument, name_end)
    control = (opening, closing, *inner, *thinking)
    frame = ("<tool_response:opensource>\n", "\n</tool_response:opensource>")
    shape = (
        f"{opening}\n{call}<tool name>{name_end}\n{{}}<argument>{{}}\n{{}}<value>{{}}\n{call_end}\n{closing}".format(
            *argument
        )
    )
    prefer_json = False
