"""The formats of DeepSeek's models: calls between control tokens, in one section at the end of a reply.

Formats: the chat templates of DeepSeek-V3 and R1 with arguments in a block of code, and of V3.1 without one.
"""

from __future__ import annotations

from atropos_agent.formats.reading import Read, expect, read_arguments, write_json
from atropos_agent.formats.sections import JsonSectionFormat, SectionFormat
from atropos_agent.types import THINK, THINK_END
from tools.base import ToolCall

CALLS, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
SEPARATOR = "<｜tool▁sep｜>"


class DeepSeekV3(SectionFormat):
    """The training format of DeepSeek-V3 and R1 models."""

    opening, closing, call, call_end = CALLS, CALLS_END, CALL, CALL_END
    inner = (CALL, CALL_END, SEPARATOR)
    control = (CALLS, CALLS_END, CALL, CALL_END, SEPARATOR, THINK, THINK_END)
    between = "\n"
    shape = (
        f"{CALLS}{CALL}function{SEPARATOR}<tool name>\n```json\n<object with its arguments>\n```{CALL_END}{CALLS_END}"
    )

    def read_one(self, text: str, start: int) -> tuple[Read, int]:
        place = expect(text, start, f"function{SEPARATOR}", f"a call must begin with function{SEPARATOR}")
        end = text.find("\n", place)
        name = text[place:end].strip() if end >= 0 else ""
        if not name or "<" in name:
            raise ValueError("the call has no tool's name on a line of its own")
        place = expect(text, end, "```json", "the call's arguments do not come after ```json")
        arguments, place = read_arguments(text, place)
        place = expect(text, place, "```", "the call's block of code is not closed right after its arguments")
        return Read(name, arguments), expect(text, place, CALL_END, f"the call is not closed with {CALL_END}")

    def write_call(self, call: ToolCall, number: int) -> str:
        arguments = write_json(dict(call.arguments))
        return f"{CALL}function{SEPARATOR}{call.name}\n```json\n{arguments}\n```{CALL_END}"


class DeepSeekV31(JsonSectionFormat):
    """The training format of DeepSeek-V3.1 models."""

    opening, closing, call, call_end, separator = CALLS, CALLS_END, CALL, CALL_END, SEPARATOR
    inner = (CALL, CALL_END, SEPARATOR)
    control = (CALLS, CALLS_END, CALL, CALL_END, SEPARATOR, THINK, THINK_END)
    shape = f"{CALLS}{CALL}<tool name>{SEPARATOR}<object with its arguments>{CALL_END}{CALLS_END}"
