"""Formats whose calls stand each in tags of its own, often in one section: DeepSeek's, Kimi's, Solar's, functionary's.

Formats: the chat templates of Solar-Open-100B and functionary-medium-v3.1, beside those in the files of the others.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence

from atropos_agent.formats.reading import (
    MOST_MALFORMED,
    Read,
    Section,
    TaggedFormat,
    expect,
    first_of,
    read_arguments,
    skip_space,
    write_json,
)
from atropos_agent.types import Reply
from tools.base import ToolCall


class SectionFormat(TaggedFormat):
    """A section of calls. `opening` and `closing` stand around the section, `call` and `call_end` around each call.

    They are the same where calls stand without a section. A `closing` that ends the turn may be missing.
    between: stands between two calls.
    """

    call: str
    call_end: str
    between: str = ""

    @abstractmethod
    def read_one(self, text: str, start: int) -> tuple[Read, int]:
        """Read a call after its opening tag; return it and the place after its closing tag. Raises ValueError."""

    @abstractmethod
    def write_call(self, call: ToolCall, number: int) -> str:
        """Return a call with its tags. It has this number in the section."""

    def read(self, text: str, start: int) -> Section:
        if self.opening == self.call:
            call, end = self.read_one(text, start)
            return Section(end, [call])
        section = Section(start)
        while True:
            place = skip_space(text, section.end)
            if text.startswith(self.closing, place) or (self.closing in self.ends and place == len(text)):
                section.end = min(place + len(self.closing), len(text))
                if not section.calls and not section.problems:
                    section.problems.append("the list of calls is empty")
                return section
            if not text.startswith(self.call, place):
                raise ValueError(f"the calls are not closed with {self.closing}")
            if len(section.problems) >= MOST_MALFORMED:
                return Section(len(text), problems=section.problems)
            try:
                call, section.end = self.read_one(text, place + len(self.call))
                section.calls.append(call)
            except ValueError as problem:
                section.problems.append(str(problem))
                section.end = self._skip_malformed_call(text, place + len(self.call))

    def write_all(self, calls: Sequence[ToolCall]) -> str:
        written = self.between.join(self.write_call(call, number) for number, call in enumerate(calls))
        return f"{self.opening}{written}{self.closing}" if calls and self.opening != self.call else written

    def _skip_malformed_call(self, text: str, start: int) -> int:
        """Return the next place to read after a malformed call: its end, else the next call or the section's end."""
        tag = first_of(text, start, self.call_end, self.call, self.closing)
        if tag is None:
            return len(text)
        return tag.end() if tag[0] == self.call_end else tag.start()


class JsonSectionFormat(SectionFormat):
    """Calls of a head, which names the tool, a separator, and the arguments as JSON.

    head: its groups are "name" and, if calls have ids, "id". begin: the head, in words.
    """

    separator: str
    head = re.compile(r"(?P<name>[^<>\n]+)")
    begin = "a tool's name"

    def read_one(self, text: str, start: int) -> tuple[Read, int]:
        end = text.find(self.separator, start)
        found = self.head.fullmatch(text[start:end].strip()) if end >= 0 else None
        if found is None:
            raise ValueError(f"the call does not begin with {self.begin} and {self.separator}")
        arguments, place = read_arguments(text, end + len(self.separator))
        call = Read(found["name"], arguments, found.groupdict().get("id", ""))
        return call, expect(text, place, self.call_end, f"the call is not closed with {self.call_end}")

    def write_call(self, call: ToolCall, number: int) -> str:
        head, arguments = self.write_head(call, number), write_json(dict(call.arguments))
        return f"{self.call}{head}{self.separator}{arguments}{self.call_end}"

    def write_head(self, call: ToolCall, number: int) -> str:
        """Return the head of a call, which has this number in the section."""
        return call.name


class Functionary(JsonSectionFormat):
    """The training format of functionary 3.1 models."""

    opening, closing = call, call_end = "<function=", "</function>"
    separator = ">"
    control = ("<function", "</function>")
    shape = f"{opening}<tool name>{separator}<object with its arguments>{closing}"


class Solar(JsonSectionFormat):
    """The training format of Solar Open models: thinking, content and calls are messages of their own."""

    opening, closing = "<|tool_calls|>", "<|calls|>"
    call, call_end = "<|tool_call:begin|>", "<|tool_call:end|>"
    separator = "<|tool_call:args|>"
    head = re.compile(r"(?P<id>[^<>\s]+)<\|tool_call:name\|>(?P<name>[^<>\n]+)")
    begin = "an id, <|tool_call:name|>, a tool's name"
    thinking = ("<|think|>", "<|end|>")
    inner = (call, call_end, separator, "<|tool_call:name|>")
    control = (opening, closing, *inner, *thinking, "<|content|>", "<|begin|>")
    ends = (closing, "<|end|>")
    channelled = True
    wrapping = re.compile(r"<\|begin\|>assistant|<\|(?:content|end)\|>")
    shape = f"{opening}{call}<id><|tool_call:name|><tool name>{separator}<object with its arguments>{call_end}{closing}"

    def write_head(self, call: ToolCall, number: int) -> str:
        return f"{call.id or self.call_id(number, call.name)}<|tool_call:name|>{call.name}"

    def turn(self, reply: Reply) -> str:
        parts = [] if reply.thinking is None else [f"<|think|>{reply.thinking}"]
        parts += [f"<|content|>{reply.content}"] if reply.content or not reply.calls else []
        parts += [self.write_all(reply.calls).removesuffix(self.closing)] if reply.calls else []
        return "<|end|><|begin|>assistant".join(parts)
