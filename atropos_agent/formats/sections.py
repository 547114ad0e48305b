"""Formats whose calls stand in one section, each in tags of its own: DeepSeek's and Kimi's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from atropos_agent.formats.reading import MOST_MALFORMED, Read, Section, TaggedFormat, first_of, skip_space
from tools.base import ToolCall


class SectionFormat(TaggedFormat):
    """A section of calls. `opening` and `closing` stand around the section, `call` and `call_end` around each call.

    between: stands between two calls.
    """

    call: str
    call_end: str
    between: str = ""

    @abstractmethod
    def read_one(self, text: str, start: int) -> tuple[Read, int]:
        """Read a call behind its opening tag; return it and the place behind its closing tag. Raises ValueError."""

    @abstractmethod
    def written(self, call: ToolCall, number: int) -> str:
        """Return a call with its tags. It has this number in the section."""

    def read(self, text: str, start: int) -> Section:
        section = Section(start)
        while True:
            place = skip_space(text, section.end)
            if text.startswith(self.closing, place):
                section.end = place + len(self.closing)
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
                section.end = self._behind(text, place + len(self.call))

    def write_all(self, calls: Sequence[ToolCall]) -> str:
        written = self.between.join(self.written(call, number) for number, call in enumerate(calls))
        return f"{self.opening}{written}{self.closing}" if calls else ""

    def write(self, call: ToolCall) -> str:
        return self.write_all([call])

    def _behind(self, text: str, start: int) -> int:
        """Return the next place to read behind a malformed call: its end, else the next call or the section's end."""
        tag = first_of(text, start, self.call_end, self.call, self.closing)
        if tag is None:
            return len(text)
        return tag.end() if tag[0] == self.call_end else tag.start()
