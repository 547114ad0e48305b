"""A format for models without any of their own: JSON calls in blocks of code, which every model has seen."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from atropos_agent.formats.reading import Section, TaggedFormat, expect, read_json, section_of, write_json
from tools.base import ToolCall

FENCE, FENCE_END = "```tool_call\n", "```"


class Plain(TaggedFormat):
    """Blocks of code marked as calls; results in blocks of code."""

    opening, closing = FENCE, FENCE_END
    stray = False
    frame = ("```tool_response\n", "\n```")
    keys = ("arguments",)
    shape = f'{FENCE}{{"name": <tool name>, "arguments": <object with its arguments>}}\n{FENCE_END}'

    def instructions(self, schemas: Sequence[Mapping[str, object]]) -> str:
        shown = "\n".join(json.dumps(schema, ensure_ascii=False) for schema in schemas)
        return (
            f"You have these tools, one a line:\n```json\n{shown}\n```\n\nTo call a tool, reply with a block of code "
            f"like this:\n{self.shape}\nSeveral calls in one reply run in order. What they return comes back in "
            "blocks of code that are marked tool_response. A reply without a call is your final answer."
        )

    def read(self, text: str, start: int) -> Section:
        value, end = read_json(text, start)
        end = expect(text, end, FENCE_END, "the block of code is not closed right after its JSON object")
        return section_of(end, value, "arguments")

    def write(self, call: ToolCall) -> str:
        return f"{FENCE}{write_json({'name': call.name, 'arguments': dict(call.arguments)})}\n{FENCE_END}"
