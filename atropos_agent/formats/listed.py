"""Formats with all calls of a reply as one JSON list between two tags.

Formats: the chat templates of NVIDIA-Nemotron-Nano-9B-v2, Apriel-1.5-15b-Thinker, Jamba, Hunyuan-A13B, Command R7B and
A, Apertus, and MiniMax M1, whose list is one of lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from atropos_agent.formats.reading import (
    Read,
    Section,
    TaggedFormat,
    expect,
    named_call,
    read_json,
    skip_space,
    write_json,
)
from atropos_agent.types import THINK, THINK_END
from tools.base import ToolCall


class ListFormat(TaggedFormat):
    """A JSON list of calls, each an object of its tool's name and its arguments. A subclass names the tags."""

    keys: Sequence[str] = ("arguments",)

    def read_list(self, text: str, start: int) -> tuple[Any, int]:
        """Read the list after the opening tag; return it and the place after it. Raises ValueError."""
        return read_json(text, start)

    def call_of(self, value: Any) -> Read:
        """Return the call in an entry of the list. Raises ValueError."""
        return named_call(value, "arguments")

    def entry(self, call: ToolCall, number: int) -> Any:
        """Return a call as an entry of the list. It has this number in it."""
        return {"name": call.name, "arguments": dict(call.arguments)}

    def read(self, text: str, start: int) -> Section:
        listed, end = self.read_list(text, start)
        if not isinstance(listed, list) or not listed:
            raise ValueError(f"a JSON list of calls must come after {self.opening}")
        section = Section(expect(text, end, self.closing, f"the list of calls is not closed with {self.closing}"))
        for value in listed:
            try:
                section.calls.append(self.call_of(value))
            except ValueError as problem:
                section.problems.append(str(problem))
        return section

    def write_all(self, calls: Sequence[ToolCall]) -> str:
        listed = [self.entry(call, number) for number, call in enumerate(calls)]
        return f"{self.opening}{write_json(listed)}{self.closing}" if calls else ""


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


class MiniMaxM1(ListFormat):
    """The training format of MiniMax M1 models: each call on a line of its own."""

    opening, closing = "<tool_calls>", "</tool_calls>"
    control = (opening, closing, THINK, THINK_END)
    shape = f'{opening}\n{{"name": <tool name>, "arguments": <object with its arguments>}}\n{closing}'

    def read_list(self, text: str, start: int) -> tuple[Any, int]:
        listed = []
        while not text.startswith(self.closing, start := skip_space(text, start)):
            value, start = read_json(text, start)
            listed.append(value)
        return listed, start

    def write_all(self, calls: Sequence[ToolCall]) -> str:
        lines = [write_json(self.entry(call, number)) for number, call in enumerate(calls)]
        return "\n".join([self.opening, *lines, self.closing]) if calls else ""


class Command(ListFormat):
    """The training format of Cohere's Command R7B, A and A+ models."""

    opening, closing = "<|START_ACTION|>", "<|END_ACTION|>"
    thinking = ("<|START_THINKING|>", "<|END_THINKING|>")
    around = ("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>")
    control = (opening, closing, *thinking, *around)
    channelled = True
    keys = ()
    wrapping = re.compile(r"<\|(?:(?:START|END)_(?:RESPONSE|TEXT)|START_OF_TURN_TOKEN|CHATBOT_TOKEN)\|>")
    shape = f'{opening}[{{"tool_call_id": "0", "tool_name": <tool name>, "parameters": <object>}}]{closing}'

    def call_of(self, value: Any) -> Read:
        return named_call(value, "parameters", name="tool_name")

    def entry(self, call: ToolCall, number: int) -> Any:
        return {"tool_call_id": str(number), "tool_name": call.name, "parameters": dict(call.arguments)}


class Apertus(ListFormat):
    """The training format of Apertus models: the tool's name is the key of its arguments."""

    opening, closing = "<|tools_prefix|>", "<|tools_suffix|>"
    thinking = ("<|inner_prefix|>", "<|inner_suffix|>")
    control = (opening, closing, *thinking)
    keys = ()
    shape = f"{opening}[{{<tool name>: <object with its arguments>}}]{closing}"

    def call_of(self, value: Any) -> Read:
        match list(value.items()) if isinstance(value, dict) else ():
            case [(str(name), dict(arguments))] if name:
                return Read(name, arguments)
        raise ValueError("the call must be a JSON object of the tool's name and its arguments, a JSON object too")

    def entry(self, call: ToolCall, number: int) -> Any:
        return {call.name: dict(call.arguments)}
