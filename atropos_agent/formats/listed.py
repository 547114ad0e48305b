"""Formats with all calls of a reply as one JSON list between two tags: Nemotron Nano v2's and Apriel's.

Formats: the chat templates of NVIDIA-Nemotron-Nano-9B-v2, Apriel-1.5-15b-Thinker, Jamba and Hunyuan-A13B.
"""

from __future__ import annotations

from collections.abc import Sequence

from atropos_agent.formats.reading import Section, TaggedFormat, expect, named_call, read_json, written_json
from atropos_agent.types import THINK, THINK_END
from tools.base import ToolCall


class ListFormat(TaggedFormat):
    """A JSON list of calls, each an object of its tool's name and its arguments. A subclass names the tags."""

    keys = ("arguments",)

    def read(self, text: str, start: int) -> Section:
        listed, end = read_json(text, start)
        if not isinstance(listed, list) or not listed:
            raise ValueError(f"a JSON list of calls must stand behind {self.opening}")
        section = Section(expect(text, end, self.closing, f"the list of calls is not closed with {self.closing}"))
        for value in listed:
            try:
                section.calls.append(named_call(value, "arguments"))
            except ValueError as problem:
                section.problems.append(str(problem))
        return section

    def write_all(self, calls: Sequence[ToolCall]) -> str:
        listed = [{"name": call.name, "arguments": dict(call.arguments)} for call in calls]
        return f"{self.opening}{written_json(listed)}{self.closing}" if calls else ""

    def write(self, call: ToolCall) -> str:
        return self.write_all([call])


class Nemotron(ListFormat):
    """The training format of Nemotron Nano v2 models; later ones have Qwen3-Coder's."""

    opening, closing = "<TOOLCALL>", "</TOOLCALL>"
    control = (opening, closing, THINK, THINK_END)
    shape = f'{opening}[{{"name": <tool name>, "arguments": <object with its arguments>}}]{closing}'


class Apriel(ListFormat):
    """The training format of Apriel 1.5 and 1.6, Jamba and Hunyuan A13B models."""

    opening, closing = "<tool_calls>", "</tool_calls>"
    control = (opening, closing, THINK, THINK_END)
    shape = Nemotron.shape.replace("TOOLCALL", "tool_calls")
