"""The format of Kimi K2: a section of calls between control tokens, each with an id that names the tool.

Format: the model's chat template and its guide to tool calls. An id is `functions.NAME:NUMBER`.
"""

from __future__ import annotations

import re

from atropos_agent.formats.sections import JsonSectionFormat
from atropos_agent.types import THINK, THINK_END
from tools.base import ToolCall

SECTION, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL, CALL_END = "<|tool_call_begin|>", "<|tool_call_end|>"
ARGUMENTS = "<|tool_call_argument_begin|>"

_ID = re.compile(r"(?P<id>(?:functions\.)?(?P<name>[^\s<>]+):\d+)")


class Kimi(JsonSectionFormat):
    """The training format of Kimi K2 models."""

    opening, closing, call, call_end, separator = SECTION, SECTION_END, CALL, CALL_END, ARGUMENTS
    head, begin = _ID, "an id such as functions.NAME:0"
    inner = (CALL, CALL_END, ARGUMENTS)
    control = (SECTION, SECTION_END, CALL, CALL_END, ARGUMENTS, THINK, THINK_END)
    shape = (
        f"{SECTION}{CALL}functions.<tool name>:<number>{ARGUMENTS}<object with its arguments>{CALL_END}{SECTION_END}"
    )

    def call_id(self, number: int, name: str) -> str:
        return f"functions.{name}:{number}"

    def write_head(self, call: ToolCall, number: int) -> str:
        found = _ID.fullmatch(call.id)
        return call.id if found and found["name"] == call.name else self.call_id(number, call.name)
