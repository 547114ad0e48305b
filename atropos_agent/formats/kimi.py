"""The format of Kimi K2: a section of calls between control tokens, each with an id that names the tool.

Format: the model's chat template and its guide to tool calls. An id is `functions.NAME:NUMBER`.
"""

from __future__ import annotations

import re

from atropos_agent.formats.reading import Read, expect, read_arguments, written_json
from atropos_agent.formats.sections import SectionFormat
from atropos_agent.types import THINK, THINK_END
from tools.base import ToolCall

SECTION, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL, CALL_END = "<|tool_call_begin|>", "<|tool_call_end|>"
ARGUMENTS = "<|tool_call_argument_begin|>"

_ID = re.compile(r"(?:functions\.)?([^\s<>]+):\d+")


class Kimi(SectionFormat):
    """The training format of Kimi K2 models."""

    opening, closing, call, call_end = SECTION, SECTION_END, CALL, CALL_END
    inner = (CALL, CALL_END, ARGUMENTS)
    control = (SECTION, SECTION_END, CALL, CALL_END, ARGUMENTS, THINK, THINK_END)
    shape = (
        f"{SECTION}{CALL}functions.<tool name>:<number>{ARGUMENTS}<object with its arguments>{CALL_END}{SECTION_END}"
    )

    def call_id(self, number: int, name: str) -> str:
        return f"functions.{name}:{number}"

    def read_one(self, text: str, start: int) -> tuple[Read, int]:
        end = text.find(ARGUMENTS, start)
        name = text[start:end].strip() if end >= 0 else ""
        found = _ID.fullmatch(name)
        if found is None:
            raise ValueError("the call does not begin with an id such as functions.NAME:0")
        arguments, place = read_arguments(text, end + len(ARGUMENTS))
        call = Read(found[1], arguments, name)
        return call, expect(text, place, CALL_END, f"the call is not closed with {CALL_END}")

    def written(self, call: ToolCall, number: int) -> str:
        found = _ID.fullmatch(call.id)
        name = call.id if found and found[1] == call.name else self.call_id(number, call.name)
        return f"{CALL}{name}{ARGUMENTS}{written_json(dict(call.arguments))}{CALL_END}"
