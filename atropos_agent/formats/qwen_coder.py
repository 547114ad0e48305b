"""The XML format of Qwen3-Coder, Qwen3.5 and Seed-OSS: `<function=…>` with a tag for each argument.

An argument is bare text between line breaks; the tool's schema gives its type. A literal closing tag in a JSON
string is text, in a text as long as no other tag of the call follows it. A line that begins like another argument of
the tool is none: the argument was not closed.

Formats: the chat templates of Qwen3-Coder and Seed-OSS. As in vLLM's `qwen3_coder`, one line break is taken off at
each side.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from atropos_agent.formats.reading import Read, Section, TaggedFormat, expect, skip_space
from atropos_agent.formats.typed import ArgumentTypes, checked, end_of_value
from atropos_agent.types import THINK, THINK_END
from tools.base import ToolCall

CALL, CALL_END = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"

_OPENED = re.compile(rf"^{PARAMETER}([^<>\n]+)>", re.MULTILINE)
"""The beginning of a value's line that looks like an argument."""


class QwenCoder(TaggedFormat):
    """The training format of Qwen3-Coder and Qwen3.5 models."""

    opening, closing = CALL, CALL_END
    inner = (FUNCTION, FUNCTION_END, PARAMETER, PARAMETER_END)
    control: Sequence[str] = (
        CALL,
        CALL_END,
        "<tool_response>",
        "</tool_response>",
        THINK,
        THINK_END,
        "<tools>",
        "</tools>",
    )
    frame: tuple[str, str] | None = ("<tool_response>\n", "\n</tool_response>")
    shape = (
        f"{CALL}\n{FUNCTION}<tool name>>\n{PARAMETER}<argument>>\n<value>\n{PARAMETER_END}\n{FUNCTION_END}\n{CALL_END}"
    )

    def __init__(self, schemas: Sequence[Mapping[str, Any]] = ()) -> None:
        self._types = ArgumentTypes(schemas)

    def with_tools(self, schemas: Sequence[Mapping[str, object]]) -> QwenCoder:
        return type(self)(schemas)

    def read(self, text: str, start: int) -> Section:
        place = expect(text, start, FUNCTION, f"a call must begin with {FUNCTION}tool name>")
        name, place = _name(text, place)
        arguments: dict[str, Any] = {}
        while not text.startswith(FUNCTION_END, place := skip_space(text, place)):
            place = expect(text, place, PARAMETER, f"the call holds something else than {PARAMETER}…> tags")
            key, place = _name(text, place)
            behind = self._types.end_of_json(name, key, text, place)
            end = end_of_value(text, behind, PARAMETER_END, (PARAMETER, FUNCTION_END))
            if key in arguments:
                raise ValueError(f"the argument {key!r} is there twice")
            value = text[place:end].removeprefix("\n")
            if not self._types.keys(name).isdisjoint(_OPENED.findall(value)):
                raise ValueError(f"the argument {key!r} is not closed before the next one")
            arguments[key] = self._types.value(name, key, value.removesuffix("\n"))
            place = end + len(PARAMETER_END)
        place += len(FUNCTION_END)
        end = expect(text, place, self.closing, "the call is not closed right after its function")
        return Section(end, [Read(name, arguments)])

    def write(self, call: ToolCall) -> str:
        written = "".join(
            f"{PARAMETER}{key}>\n{self._types.text(call.name, key, value)}\n{PARAMETER_END}\n"
            for key, value in call.arguments.items()
        )
        text = f"{self.opening}\n{FUNCTION}{call.name}>\n{written}{FUNCTION_END}\n{self.closing}"
        return checked(self, call, text)


class SeedOss(QwenCoder):
    """The training format of Seed-OSS models."""

    opening, closing = "<seed:tool_call>", "</seed:tool_call>"
    thinking = ("<seed:think>", "</seed:think>")
    control = (opening, closing, *thinking)
    frame = None
    shape = QwenCoder.shape.replace(CALL, opening).replace(CALL_END, closing)


def _name(text: str, start: int) -> tuple[str, int]:
    end = text.find(">", start)
    name = text[start:end] if end >= 0 else ""
    if not name or any(character in "<>\n" for character in name):
        raise ValueError("the name of a tool or an argument is missing, or not closed")
    return name, end + 1
