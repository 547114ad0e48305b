"""The Hermes tool format: JSON calls in `<tool_call>` tags, results in `<tool_response>` tags.

A reply may think inside `<think>` and makes calls as
`<tool_call>{"name": …, "arguments": {…}}</tool_call>`; results go back as `<tool_response>`.

Format: NousResearch/Hermes-Function-Calling (prompt format of Hermes 2 Pro and later).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from atropos_agent.formats.reading import Section, TaggedFormat, expect, read_json, section_of, write_json
from atropos_agent.types import THINK, THINK_END
from tools.base import ToolCall

CALL, CALL_END = "<tool_call>", "</tool_call>"
RESPONSE, RESPONSE_END = "<tool_response>", "</tool_response>"


class Hermes(TaggedFormat):
    """The training format of Hermes, Qwen2.5 and Qwen3 models."""

    opening, closing = CALL, CALL_END
    control = (CALL, CALL_END, RESPONSE, RESPONSE_END, THINK, THINK_END, "<tools>", "</tools>")
    frame = (f"{RESPONSE}\n", f"\n{RESPONSE_END}")
    keys = ("arguments",)
    shape = f'{CALL}\n{{"name": <tool name>, "arguments": <object with its arguments>}}\n{CALL_END}'

    def instructions(self, schemas: Sequence[Mapping[str, object]]) -> str:
        shown = "\n".join(json.dumps(schema, ensure_ascii=False) for schema in schemas)
        return (
            f"You have these tools:\n<tools>\n{shown}\n</tools>\n\n"
            "To call a tool, reply with\n"
            f"{self.shape}\n"
            f"Several calls in one reply run in order. What they return comes back in {RESPONSE} tags. "
            f"You may think between {THINK} and {THINK_END} first. "
            "A reply without a call is your final answer."
        )

    def read(self, text: str, start: int) -> Section:
        value, end = read_json(text, start)
        end = expect(text, end, CALL_END, "the call is not closed right after its JSON object")
        return section_of(end, value, "arguments")

    def write(self, call: ToolCall) -> str:
        return f"{CALL}\n{write_json({'name': call.name, 'arguments': dict(call.arguments)})}\n{CALL_END}"
