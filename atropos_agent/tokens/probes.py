"""Marked messages that find out the behaviour of a chat template.

A probe is a short conversation with marks as contents. No template would write them itself, so
the text around them is the template's own.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence

from atropos_agent.types import THINK, THINK_END, Message

MARK = "\ufdd1"
"""Begins and ends each mark. A Unicode noncharacter: valid text never holds it."""


Frame = tuple[str, str]
"""A tool format's text before and after a result (`ToolFormat.frame`)."""


class ReplyKind(enum.Enum):
    """The features by which templates tell replies apart."""

    PLAIN = "plain"
    OPENED = "opened"
    """Holds `<think>` but not its end."""
    CLOSED = "closed"
    """Holds `</think>` but not its start, because the prompt ended with it."""
    THOUGHT = "thought"
    """Holds `<think>` and `</think>`."""
    EMPTIED = "emptied"
    """Closes at once the thinking that the prompt opened: white space, then `</think>`."""
    EMPTY = "empty"
    """Holds `<think>` and `</think>` with nothing between, which some templates leave out of earlier turns."""
    SCATTERED = "scattered"
    """Has thinking tags elsewhere than once at its start: some templates keep the last of such a reply alone."""
    HEADED = "headed"
    """Starts with the template's header before a reply's content."""
    CHANNELLED = "channelled"
    """Has more of the template's control tokens in it than this header."""

    def without_thinking(self) -> ReplyKind:
        """Return the kind of the same reply without thinking."""
        return self if self in (self.HEADED, self.CHANNELLED) else self.PLAIN

    @classmethod
    def of(cls, text: str) -> ReplyKind:
        """Return the kind of a reply in a template without headers."""
        before, opened, rest = text.partition(THINK)
        thought, closed, behind = (rest if opened else before).partition(THINK_END)
        if (opened and THINK_END in before) or (closed and (THINK in behind or THINK_END in behind)):
            return cls.SCATTERED
        match bool(opened), bool(closed):
            case True, True if before.strip():
                return cls.SCATTERED
            case True, True:
                return cls.THOUGHT if thought.strip() else cls.EMPTY
            case True, False:
                return cls.OPENED
            case False, True:
                return cls.CLOSED if thought.strip() else cls.EMPTIED
        return cls.PLAIN


_REPLIES = {
    ReplyKind.OPENED: f"{THINK}\n{{mark}}",
    ReplyKind.CLOSED: f"{{thought}}\n{THINK_END}\n\n{{mark}}",
    ReplyKind.THOUGHT: f"{THINK}\n{{thought}}\n{THINK_END}\n\n{{mark}}",
    ReplyKind.EMPTIED: f"\n{THINK_END}\n\n{{mark}}",
    ReplyKind.EMPTY: f"{THINK}\n\n{THINK_END}\n\n{{mark}}",
    ReplyKind.SCATTERED: (
        f"{{first}}\n{THINK}\n{{thought}}\n{THINK_END}\n\n{{second}}\n{THINK}\n{{more}}\n{THINK_END}\n\n{{mark}}"
    ),
}


def mark(i: int) -> str:
    """Return the mark of number i, below 1000."""
    return f"{MARK}{i:03d}{MARK}"


def marks(text: str) -> list[str]:
    """Return all marks in a text, in order."""
    return re.findall(f"{MARK}\\d{{3}}{MARK}", text)


def system(i: int) -> Message:
    return {"role": "system", "content": mark(i)}


def user(i: int) -> Message:
    return {"role": "user", "content": mark(i)}


def reply(i: int, kind: ReplyKind = ReplyKind.PLAIN) -> Message:
    """Return a reply whose content ends with mark i, at most 400; the text before it has marks from 500 + i on."""
    form = _REPLIES.get(kind, "{mark}")
    parts = {name: mark(500 + i + n) for n, name in enumerate(("thought", "first", "second", "more"))}
    return {"role": "assistant", "content": form.format(mark=mark(i), **parts)}


def shape_like(messages: Sequence[Message], i: int, frame: Frame | None) -> list[Message]:
    """Return marks from i on in the shape of `messages`: templates tell results from questions by their frame."""
    return [
        {
            **{key: message[key] for key in ("tool_call_id", "name") if key in message},
            "role": message["role"],
            "content": f"{frame[0]}{mark(i + n)}{frame[1]}" if frame and is_framed(message, frame) else mark(i + n),
        }
        for n, message in enumerate(messages)
    ]


def is_framed(message: Message, frame: Frame | None) -> bool:
    """Tell whether a message is a tool result by its content."""
    if frame is None:
        return False
    content = str(message["content"]).strip()
    return content.startswith(frame[0].strip()) and content.endswith(frame[1].strip())


def strip_whitespace(text: str) -> str:
    """Return text without white space: templates trim it as they like."""
    return "".join(text.split())
