"""The format of Gemma 4: `<|tool_call>call:NAME{KEY:VALUE}<tool_call|>`, text between `<|"|>` tokens.

Thinking stands in a channel of its own. Text that spells `<|"|>` can't be written.

Format: the chat template of Gemma 4. It writes arguments in the order of their names, and Python's None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from atropos_agent.formats.literals import Literals, names
from atropos_agent.formats.reading import Read, Section, TaggedFormat, expect
from atropos_agent.formats.typed import checked
from atropos_agent.types import Reply
from tools.base import ToolCall

CALL, CALL_END = "<|tool_call>", "<tool_call|>"
RESPONSE, RESPONSE_END = "<|tool_response>", "<tool_response|>"
QUOTE = '<|"|>'
THOUGHT, THOUGHT_END = "<|channel>thought\n", "<channel|>"

_name = names(re.compile(r"[^\s{}\[\]:,<>]++"))


class Gemma4(TaggedFormat):
    """The training format of Gemma 4 models."""

    opening, closing = CALL, CALL_END
    inner = (QUOTE,)
    thinking = (THOUGHT, THOUGHT_END)
    control = (CALL, CALL_END, RESPONSE, RESPONSE_END, QUOTE, "<|channel>", "<channel|>", "<|tool>", "<tool|>")
    ends = (RESPONSE,)
    shape = f"{CALL}call:<tool name>{{<argument>:<value>}}{CALL_END}, text as {QUOTE}<text>{QUOTE}"

    def read(self, text: str, start: int) -> Section:
        place = expect(text, start, "call:", "a call must begin with call:NAME")
        name, place = _name(text, place)
        place = expect(text, place, "{", "no { comes after the tool's name")
        arguments, place = _GEMMA.mapping(text, place)
        end = expect(text, place, CALL_END, f"the call is not closed with {CALL_END}")
        return Section(end, [Read(name, arguments)])

    def turn(self, reply: Reply) -> str:
        thought = "" if reply.thinking is None else f"{THOUGHT}{reply.thinking}\n{THOUGHT_END}"
        return f"{thought}{reply.content}{self.write_all(reply.calls)}"

    def write(self, call: ToolCall) -> str:
        given = ",".join(f"{key}:{_write_value(value)}" for key, value in sorted(call.arguments.items()))
        return checked(self, call, f"{CALL}call:{call.name}{{{given}}}{CALL_END}")


def _write_value(value: Any) -> str:
    match value:
        case str():
            return f"{QUOTE}{value}{QUOTE}"
        case bool():
            return str(value).lower()
        case Mapping():
            return "{" + ",".join(f"{key}:{_write_value(one)}" for key, one in sorted(value.items())) + "}"
        case list() | tuple():
            return "[" + ",".join(map(_write_value, value)) + "]"
    return repr(value)


def _text(text: str, start: int) -> tuple[str, int] | None:
    if not text.startswith(QUOTE, start):
        return None
    end = text.find(QUOTE, start := start + len(QUOTE))
    if end < 0:
        raise ValueError(f"a text is not closed with {QUOTE}")
    return text[start:end], end + len(QUOTE)


def _key(text: str, start: int) -> tuple[str, int]:
    quoted = _text(text, start)
    return _name(text, start) if quoted is None else quoted


_GEMMA = Literals(_text, _key)
