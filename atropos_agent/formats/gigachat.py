"""The formats of GigaChat 3 and 3.1: a reply's one call as a JSON object, behind a tag or in a message of its own.

Formats: the chat templates of GigaChat3-10B-A1.8B and GigaChat3.1-10B-A1.8B. As in vLLM's `gigachat3`, a reply has one
call, and nothing behind it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from atropos_agent.formats.reading import Section, TaggedFormat, read_json, section_of, skip_space, written_json
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
        if skip_space(text, end) < len(text):
            return Section(len(text), problems=["there is text behind the call: a reply has one, at its end"])
        return section_of(end, value, *self.keys)

    def write_all(self, calls: Sequence[ToolCall]) -> str:
        if len(calls) > 1:
            raise ValueError("a reply in this format has one call")
        return super().write_all(calls)

    def write(self, call: ToolCall) -> str:
        return f"{self.opening}{written_json({'name': call.name, 'arguments': dict(call.arguments)})}"


class GigaChat3(GigaChat):
    """The training format of GigaChat 3 models."""

    opening = closing = "function call<|role_sep|>\n"
    wrapping = re.compile(r"<\|message_sep\|>\s*")
    shape = GigaChat.shape.replace(GigaChat.opening, opening)

    def write(self, call: ToolCall) -> str:
        return f"<|message_sep|>\n\n{super().write(call)}"
