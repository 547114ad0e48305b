"""The JSON format of Llama 3.x: a reply that is a call is nothing else.

`{"name": …, "parameters": {…}}`, several one after another with `;` between, `<|python_tag|>` before them or not.
A reply that is other JSON is an answer.

Format: Meta's prompt format of Llama 3.1 and 3.2. As in vLLM's `llama3_json`, "arguments" stands for "parameters".
"""

from __future__ import annotations

from collections.abc import Sequence

from atropos_agent.formats.bare import NOTHING_ELSE, BareFormat
from atropos_agent.formats.reading import (
    Section,
    begins_call,
    holds_call,
    read_json,
    section_of,
    skip_space,
    write_json,
)
from tools.base import ToolCall

TAG = "<|python_tag|>"


class LlamaJson(BareFormat):
    """The training format of Llama 3.1, 3.2 and 3.3 models."""

    opening = closing = TAG
    control = (TAG,)
    shape = '{"name": <tool name>, "parameters": <object with its arguments>}'

    def begins(self, text: str, start: int) -> bool:
        return begins_call(text, start)

    def holds(self, content: str) -> bool:
        return holds_call(content, "parameters", "arguments")

    def read(self, text: str, start: int) -> Section:
        whole = Section(start)
        while True:
            value, end = read_json(text, whole.end)
            one = section_of(end, value, "parameters", "arguments")
            whole.end = end
            whole.calls += one.calls
            whole.problems += one.problems
            place = skip_space(text, end)
            if not text.startswith(";", place):
                break
            whole.end = place + 1
        if place < len(text):
            raise ValueError(f"there is text after the call: {NOTHING_ELSE}")
        return whole

    def write_all(self, calls: Sequence[ToolCall]) -> str:
        return "; ".join(map(self.write, calls))

    def write(self, call: ToolCall) -> str:
        return write_json({"name": call.name, "parameters": dict(call.arguments)})
