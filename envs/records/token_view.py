"""A row of tokens as HTML: every token a box, coloured by whether it is trained and how likely it was."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from markupsafe import Markup, escape

from atropos_agent.types import IGNORED, SequenceData

LEVELS = (0.9, 0.5, 0.2, 0.05, 0.01)
"""Probabilities that divide trained tokens into classes p0 (the most likely) to p5."""

_CONTROL_TOKEN = re.compile(r"<[|｜].+[|｜]>|</?s>|<(?:bos|eos|pad|unk|start_of_turn|end_of_turn)>|\[/?INST\]")
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)


@dataclass(frozen=True, slots=True)
class TokenView:
    """A row made visible.

    html: one `<i>` a token. cut: tokens at the end that are not in it. doubled: places at which a
    control token stands twice with nothing but white space between, as a mended end of turn would.
    mean_logprob: of the trained tokens; None when there are none.
    """

    html: Markup
    tokens: int
    trained: int
    cut: int
    doubled: Sequence[int]
    mean_logprob: float | None


def token_view(row: SequenceData, decode: Callable[[int], str] | None, *, limit: int) -> TokenView:
    """Return the first `limit` tokens of a row. Without `decode` the ids stand for the texts."""
    text_of = cache(decode) if decode is not None else str
    texts = [text_of(token) for token in row.tokens]
    trained = [logprob for mask, logprob in zip(row.masked_tokens, row.logprobs, strict=True) if mask != IGNORED]
    doubled = _doubled(texts)
    boxes = [
        _box(row.tokens[i], texts[i], None if row.masked_tokens[i] == IGNORED else row.logprobs[i], i in doubled)
        for i in range(min(limit, len(texts)))
    ]
    return TokenView(
        html=Markup(("" if decode is not None else " ").join(boxes)),
        tokens=len(texts),
        trained=len(trained),
        cut=max(0, len(texts) - limit),
        doubled=doubled,
        mean_logprob=math.fsum(trained) / len(trained) if trained else None,
    )


def visible(text: str) -> str:
    """Return text in which control characters can be seen and can't reorder or hide what stands around them."""
    return _UNSEEN.sub(_name, text.encode("utf-8", "replace").decode("utf-8"))


def _box(token: int, text: str, logprob: float | None, doubled: bool) -> str:
    shown = visible(text).replace("\n", "⏎\n").replace("\t", "⇥\t") or "∅"
    kind = "c" if logprob is None else f"p{sum(math.exp(logprob) < level for level in LEVELS)}"
    title = f"{token}" if logprob is None else f"{token} · {logprob:.4f} · {math.exp(logprob):.1%}"
    if _CONTROL_TOKEN.fullmatch(text):
        kind += " k d" if doubled else " k"
    return f'<i class="{kind}" title="{title}">{escape(shown)}</i>'


def _doubled(texts: Sequence[str]) -> list[int]:
    found, last = [], ""
    for place, text in enumerate(texts):
        if not text.strip():
            continue
        control = text if _CONTROL_TOKEN.fullmatch(text) else ""
        if control and control == last:
            found.append(place)
        last = control
    return found


def _name(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"
