"""The JSON format of Llama 3.x: a reply that is a call is nothing else.

`{"name": …, "parameters": {…}}`, several behind each other with `;` between, `<|python_tag|>` before them or not.
A reply that is other JSON is an answer.

Format: Meta's prompt format of Llama 3.1 and 3.2. As in vLLM's `llama3_json`, "arguments" stands for "parameters".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from atropos_agent.formats.reading import Section, TaggedFormat, read_json, section_of, skip_space, written_json
from atropos_agent.types import THINK, THINK_END, Reply
from tools.base import ToolCall

TAG = "<|python_tag|>"

_CALL = re.compile(r'\{\s*"(?:type"\s*:\s*"function"\s*,\s*")?(?:name|parameters|arguments|function)"\s*:')
"""How a call begins."""


class LlamaJson(TaggedFormat):
    """What Llama 3.1, 3.2 and 3.3 models were trained on."""

    opening = closing = TAG
    stray = False
    control = (TAG,)
    tokens = (TAG,)
    shape = '{"name": <tool name>, "parameters": <object with its arguments>}'

    def parse(self, text: str, *, first_id: int = 0, thinking_open: bool = False) -> Reply:
        start = self._bare(text, thinking_open)
        # A call without the tag is read as one with it.
        tagged = text if start is None else f"{text[:start]}{TAG}{text[start:]}"
        reply = super().parse(tagged, first_id=first_id, thinking_open=thinking_open)
        if reply.calls or reply.problems or not _holds_call(reply.content):
            return reply
        return replace(reply, problems=("a call has text before it: a reply that calls a tool is nothing else",))

    def literals(self, text: str, *, thinking_open: bool = False) -> Sequence[tuple[int, int]]:
        start = self._bare(text, thinking_open)
        if start is None:
            return super().literals(text, thinking_open=thinking_open)
        tagged = f"{text[:start]}{TAG}{text[start:]}"
        return [(begin, end - len(TAG)) for begin, end in super().literals(tagged, thinking_open=thinking_open)]

    def read(self, text: str, start: int) -> Section:
        whole = Section(start)
        while True:
            value, end = read_json(text, whole.end)
            one = section_of(end, value, "parameters", "arguments")
            whole = Section(end, whole.calls + one.calls, whole.problems + one.problems)
            place = skip_space(text, end)
            if not text.startswith(";", place):
                break
            whole.end = place + 1
        if place < len(text):
            raise ValueError("there is text behind the call: a reply that calls a tool is nothing else")
        return whole

    def write_all(self, calls: Sequence[ToolCall]) -> str:
        return "; ".join(map(self.write, calls))

    def write(self, call: ToolCall) -> str:
        return written_json({"name": call.name, "parameters": dict(call.arguments)})

    def _bare(self, text: str, thinking_open: bool) -> int | None:
        """Return where a call without the tag begins; None where there is none."""
        start = skip_space(text, 0)
        if thinking_open or text.startswith(THINK, start):
            closed = text.find(THINK_END, start)
            if closed < 0:
                return None
            start = skip_space(text, closed + len(THINK_END))
        return start if _CALL.match(text, start) else None


def _holds_call(content: str) -> bool:
    """Tell whether a call stands in content, behind other text."""
    for found in _CALL.finditer(content):
        try:
            value, _ = read_json(content, found.start())
        except ValueError:
            continue
        if isinstance(value, dict) and "name" in value and ("parameters" in value or "arguments" in value):
            return True
    return False
