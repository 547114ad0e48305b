"""The header of replies: the template's text between its prompt for a reply and the reply's content."""

from __future__ import annotations

import re
from collections.abc import Sequence

from atropos_agent.tokens.encoding import CUT, SPELLED, unquote
from atropos_agent.tokens.probes import ReplyKind


class Header:
    """The text that the model samples before a reply's content. False without any.

    text: all of it, "" for none. controls: the control tokens in it, in their order.
    """

    def __init__(self, text: str, controls: Sequence[str]) -> None:
        self.text = text
        self._controls = controls

    def __bool__(self) -> bool:
        return bool(self.text)

    def content_of(self, text: str) -> str:
        """Return a reply's content, quoted or not, as the template takes it: without the header."""
        if not self.text:
            return text
        last = self.text[self.text.rindex(self._controls[-1]) :]
        pattern = f"{CUT}?".join(map(re.escape, last)) if self._begins(text) else re.escape(last)
        *_, end = (0, *(found.end() for found in re.finditer(pattern, text)))
        return text[end:]

    def kind_of(self, text: str) -> ReplyKind:
        """Return the features by which the template tells a reply, quoted or not, apart."""
        if not self.text:
            return ReplyKind.of(text.replace(SPELLED, ""))
        text = unquote(text).lstrip() if self._begins(text) else text
        rest = text.removeprefix(self.text)
        if any(token in rest for token in self._controls):
            return ReplyKind.CHANNELLED
        return ReplyKind.PLAIN if rest == text else ReplyKind.HEADED

    def _begins(self, text: str) -> bool:
        """Tell whether a reply begins as the header does, in whichever ids; further inside spelled ones are text."""
        return unquote(text).lstrip().startswith(self._controls[0])
