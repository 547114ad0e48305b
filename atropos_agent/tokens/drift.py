"""Whether a prompt is still the chat template's own.

A conversation is encoded piece by piece, by the answers of short probes to the template. A template may treat a long
conversation otherwise than a short one: keep the last thoughts only, or the last messages. Rows stay the
truth then, but their prompts are others than the template would make. So it is computed once, at the end.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence

from atropos_agent.tokens.encoding import unquote
from atropos_agent.tokens.probes import strip_whitespace
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import THINK, THINK_END, Message

_THOUGHT = re.compile(rf"{THINK}.*?{THINK_END}|[^>]*{THINK_END}|{THINK}", re.DOTALL)


class Drift(enum.StrEnum):
    """How the sent prompt differs from the template's own."""

    WHITE_SPACE = "white space"
    """In white space alone: most templates trim it."""
    THINKING = "thinking"
    """In the thinking of earlier replies."""
    CALLS = "calls"
    """In the text of calls: the template writes them in its own way (white space, escapes, the order of keys)."""
    MESSAGES = "messages"
    """Sent messages are left out."""
    TEXT = "text"
    """In anything else."""


def drift_of(
    template: ChatTemplate,
    sent: Sequence[int],
    messages: Sequence[Message],
    rendered: str,
    called: Sequence[tuple[int, int]] = (),
) -> Drift | None:
    """Return how a prompt differs from the template's own rendering of its messages; None if it does not.

    called: the places in it of replies with calls that the template was given as such."""
    # Where control tokens take up white space, the text does not show which of it the model would see.
    shown = template.decode(template.encode(rendered)) if template.greedy else unquote(rendered)
    # Without what stands for incomplete UTF-8, of which a reply alone may have another number.
    texts = [text.replace("\ufffd", "") for text in (template.decode(sent), shown)]
    ours, theirs = map(template.normalized, texts)
    if ours == theirs:
        return None
    ours, theirs = (_normalize(template, text) for text in texts)
    if ours == theirs:
        return Drift.WHITE_SPACE
    if _strip_thinking(ours) == _strip_thinking(theirs):
        return Drift.THINKING
    if called and _differs_in_replies(template, sent, theirs, called):
        return Drift.CALLS
    contents = [_normalize(template, _strip_thinking(unquote(message["content"]))) for message in messages]
    if any(content in ours and content not in theirs for content in contents):
        return Drift.MESSAGES
    return Drift.TEXT


def _differs_in_replies(
    template: ChatTemplate, sent: Sequence[int], theirs: str, called: Sequence[tuple[int, int]]
) -> bool:
    """Tell whether all text around these replies is the template's own. theirs: its text, bare."""
    places = [0, *(place for both in called for place in both), len(sent)]
    around = [template.decode(sent[start:end]) for start, end in zip(places[::2], places[1::2], strict=True)]
    pieces = [_normalize(template, text.replace("\ufffd", "")) for text in around]
    if not (theirs.startswith(pieces[0]) and theirs.endswith(pieces[-1])):
        return False
    place = 0
    for piece in pieces:
        place = theirs.find(piece, place)
        if place < 0:
            return False
        place += len(piece)
    return True


def _normalize(template: ChatTemplate, text: str) -> str:
    """Return text as the tokenizer takes it, without white space: SentencePiece's tokenizers have a sign for it, and
    some put one in front."""
    return strip_whitespace(template.normalized(text)).replace("\u2581", "")


def _strip_thinking(text: str) -> str:
    return _THOUGHT.sub("", text)
