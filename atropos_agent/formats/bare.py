"""Formats whose calls stand in a reply by themselves, with or without a tag before them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from atropos_agent.formats.reading import TaggedFormat, skip_space
from atropos_agent.types import THINK, THINK_END, Reply

NOTHING_ELSE = "a reply that calls a tool is nothing else"


class BareFormat(TaggedFormat):
    """Calls without a tag are read as those after `opening`, if the reply begins with them."""

    stray = False

    @abstractmethod
    def begins(self, text: str, start: int) -> bool:
        """Tell whether a call begins at `start`."""

    @abstractmethod
    def holds(self, content: str) -> bool:
        """Tell whether a call stands in content, after other text."""

    def parse(self, text: str, *, first_id: int = 0, thinking_open: bool = False) -> Reply:
        start = self._bare(text, thinking_open)
        tagged = text if start is None else f"{text[:start]}{self.opening}{text[start:]}"
        reply = super().parse(tagged, first_id=first_id, thinking_open=thinking_open)
        if reply.calls or reply.problems or not self.holds(reply.content):
            return reply
        return replace(reply, problems=(f"a call has text before it: {NOTHING_ELSE}",))

    def literals(self, text: str, *, thinking_open: bool = False) -> Sequence[tuple[int, int]]:
        start = self._bare(text, thinking_open)
        if start is None:
            return super().literals(text, thinking_open=thinking_open)
        tagged = f"{text[:start]}{self.opening}{text[start:]}"
        spans = super().literals(tagged, thinking_open=thinking_open)
        return [(max(start, begin - len(self.opening)), end - len(self.opening)) for begin, end in spans]

    def _bare(self, text: str, thinking_open: bool) -> int | None:
        """Return the beginning of a call without the tag; None without such a call."""
        start = skip_space(text, 0)
        if thinking_open or text.startswith(THINK, start):
            closed = text.find(THINK_END, start)
            if closed < 0:
                return None
            start = skip_space(text, closed + len(THINK_END))
        return start if self.begins(text, start) else None
