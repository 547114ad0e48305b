"""Marked messages with which a chat template is asked what it does.

A probe is a short conversation whose contents are marks that no template would write itself, so
that what stands around them is the template's own.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence

from atropos_agent.types import Message

MARK = "\ufdd1"
"""Begins and ends each mark. A Unicode noncharacter: valid text never holds it."""


class ReplyKind(enum.Enum):
    """What templates tell replies apart by."""

    PLAIN = "plain"
    OPENED = "opened"
    """Holds `<think>` but not its end."""
    CLOSED = "closed"
    """Holds `</think>` but not its start, because the prompt ended with it."""
    THOUGHT = "thought"
    """Holds `<think>` and `</think>`."""
    HEADED = "headed"
    """Starts with the header that the template writes before a reply's content."""
    CHANNELLED = "channelled"
    """Has more of the template's control tokens in it than that header."""

    @classmethod
    def of(cls, text: str) -> ReplyKind:
        """The kind of a reply in a template without headers."""
        match "<think>" in text, "</think>" in text:
            case True, True:
                return cls.THOUGHT
            case True, False:
                return cls.OPENED
            case False, True:
                return cls.CLOSED
        return cls.PLAIN


_REPLIES = {
    ReplyKind.OPENED: "<think>\n{mark}",
    ReplyKind.CLOSED: "{thought}\n</think>\n\n{mark}",
    ReplyKind.THOUGHT: "<think>\n{thought}\n</think>\n\n{mark}",
}


def mark(i: int) -> str:
    """The mark of number i, below 1000."""
    return f"{MARK}{i:03d}{MARK}"


def marks(text: str) -> list[str]:
    """All marks in a text, in order."""
    return re.findall(f"{MARK}\\d{{3}}{MARK}", text)


def user(i: int) -> Message:
    return {"role": "user", "content": mark(i)}


def reply(i: int, kind: ReplyKind = ReplyKind.PLAIN) -> Message:
    """A reply whose content ends with mark i; its thoughts have the mark 500 + i."""
    form = _REPLIES.get(kind, "{mark}")
    return {"role": "assistant", "content": form.format(mark=mark(i), thought=mark(500 + i))}


def shaped(messages: Sequence[Message], i: int) -> list[Message]:
    """Marks from i on in the shape of `messages`: templates tell tool results from questions by their tags."""
    return [
        {
            "role": message["role"],
            "content": f"<tool_response>\n{mark(i + n)}\n</tool_response>" if is_tagged(message) else mark(i + n),
        }
        for n, message in enumerate(messages)
    ]


def is_tagged(message: Message) -> bool:
    """Whether a message is a tool result by its content."""
    content = message["content"].strip()
    return content.startswith("<tool_response>") and content.endswith("</tool_response>")


def squeeze(text: str) -> str:
    """Text without white space, which templates trim as they like."""
    return "".join(text.split())
