"""Formats that write calls as Python does: `[NAME(KEY=VALUE, …), …]`, Llama 4's and LFM2's.

Format: Meta's prompt format of Llama 4 and the chat template of LFM2. As in vLLM's `llama4_pythonic`, the tags around
Llama 4's list may be left out; true, false and null stand for Python's words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from atropos_agent.formats.bare import NOTHING_ELSE, BareFormat
from atropos_agent.formats.literals import Literals, names, python_text
from atropos_agent.formats.reading import Read, Section, TaggedFormat, expect, skip_space
from tools.base import ToolCall

_NAME = re.compile(r"[^\s\[\](){},=:'\"<>]++")
_name = names(_NAME)
_BEGIN = re.compile(r"\[\s*+[^\s\[\](){},=:'\"<>]++\(")
_MOST = 20
"""Places in content that are looked at for a call."""


class Pythonic(BareFormat):
    """The training format of Llama 4 models."""

    opening, closing = "<|python_start|>", "<|python_end|>"
    control = (opening, closing)
    shape = "[<tool name>(<argument>=<value>)]"

    def begins(self, text: str, start: int) -> bool:
        return _BEGIN.match(text, start) is not None

    def holds(self, content: str) -> bool:
        for found, _ in zip(_BEGIN.finditer(content), range(_MOST), strict=False):
            try:
                read_list(content, found.start())
            except ValueError:
                continue
            return True
        return False

    def read(self, text: str, start: int) -> Section:
        calls, end = read_list(text, start)
        place = skip_space(text, end)
        if text.startswith(self.closing, place):
            end = place + len(self.closing)
            place = skip_space(text, end)
        if place < len(text):
            raise ValueError(f"there is text after the calls: {NOTHING_ELSE}")
        return Section(end, calls)

    def write_all(self, calls: Sequence[ToolCall]) -> str:
        return write_list(calls) if calls else ""


class Lfm2(TaggedFormat):
    """The training format of LFM2 models."""

    opening, closing = "<|tool_call_start|>", "<|tool_call_end|>"
    control = (opening, closing)
    shape = f"{opening}[<tool name>(<argument>=<value>)]{closing}"

    def read(self, text: str, start: int) -> Section:
        calls, end = read_list(text, start)
        return Section(expect(text, end, self.closing, f"the calls are not closed with {self.closing}"), calls)

    def write_all(self, calls: Sequence[ToolCall]) -> str:
        return f"{self.opening}{write_list(calls)}{self.closing}" if calls else ""


def read_list(text: str, start: int) -> tuple[list[Read], int]:
    """Read a list of calls; return them and the place after it. Raises ValueError, which says what is wrong."""
    place = expect(text, start, "[", "the calls must stand in a list, [NAME(KEY=VALUE)]")
    calls: list[Read] = []
    while True:
        name, place = _name(text, skip_space(text, place))
        place = expect(text, place, "(", f"no ( comes after {name!r}")
        arguments, place = PYTHON.mapping(text, place, sign="=", closing=")", key_of=_name)
        calls.append(Read(name, arguments))
        place = skip_space(text, place)
        if text.startswith("]", place):
            return calls, place + 1
        place = expect(text, place, ",", "a call is followed by neither a comma nor ]")


def write_list(calls: Sequence[ToolCall]) -> str:
    """Return calls as a list. Raises ValueError for names that can't stand there."""
    written = []
    for call in calls:
        for name in (call.name, *call.arguments):
            if _NAME.fullmatch(name) is None:
                raise ValueError(f"a call of {call.name!r} can't be written: {name!r} is no name")
        given = ", ".join(f"{key}={write_python(value)}" for key, value in call.arguments.items())
        written.append(f"{call.name}({given})")
    return f"[{', '.join(written)}]"


def write_python(value: Any) -> str:
    """Return a value as Python writes it, text in double quotes."""
    match value:
        case Mapping():
            return "{" + ", ".join(f"{write_python(key)}: {write_python(one)}" for key, one in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(write_python, value)) + "]"
        case str():
            return json.dumps(value, ensure_ascii=False)
    return repr(value)


def _key(text: str, start: int) -> tuple[str, int]:
    if (quoted := python_text(text, start)) is None:
        raise ValueError("a dictionary's key must be a string")
    return quoted


PYTHON = Literals(python_text, _key)
