"""The formats of GigaChat 3 and 3.1: a call is a JSON object, after a tag or in a message of its own.

Formats: the chat templates of GigaChat3-10B-A1.8B and GigaChat3.1-10B-A1.8B. As in vLLM's `gigachat3`, nothing
comes after a call; only here it may be another one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from atropos_agent.formats.reading import Section, TaggedFormat, read_json, section_of, skip_space, write_json
from tools.base import ToolCall


class GigaChat(TaggedFormat):
    """The training format of GigaChat 3.1 models."""

    opening = closing = "<|function_call|>"
    stray = False
    keys = ("arguments",)
    control: Sequence[str] = (opening, "<|message_sep|>", "<|role_sep|>")
    ends = ("<|message_sep|>",)
    shape = f'{opening}{{"name": <tool name>, "arguments": <object with its arguments>}}'

    def read(self, text: str, start: int) -> Section:
        value, end = read_json(text, start)
        place = skip_space(text, end)
        if place < len(text) and not text.startswith((self.opening, "<|message_sep|>"), place):
            raise ValueError("there is text after the call, which must stand at the reply's end")
        return section_of(end, value, *self.keys)

    def write(self, call: ToolCall) -> str:
        return f"{self.opening}{write_json({'name': call.name, 'arguments': dict(call.arguments)})}"


class GigaChat3(GigaChat):
    """The training format of GigaChat 3 models."""

    opening = closing = "function call<|role_sep|>\n"
    wrapping = re.compile(r"<\|message_sep\|>\s*")
    shape = GigaChat.shape.replace(GigaChat.opening, opening)

    def write(self, call: ToolCall) -> str:
        return f"<|message_sep|>\n\n{super().write(call)}"
