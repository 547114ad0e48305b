"""A row of tokens as HTML: every token a box, coloured by whether it is trained and how likely it was."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache

from markupsafe import Markup, escape

from atropos_agent.types import IGNORED, SequenceData

LEVELS = (0.9, 0.5, 0.2, 0.05, 0.01)
"""Probabilities between the classes of trained tokens, p0 (the most likely) to p5."""

_CONTROL_TOKEN = re.compile(r"<[|｜].+[|｜]>|</?s>|<(?:bos|eos|pad|unk|start_of_turn|end_of_turn)>|\[/?INST\]")
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)


@dataclass(frozen=True, slots=True)
class TokenView:
    """A row made visible.

    html: one `<i>` a token. cut: tokens left out at the end. doubled: places of a control token repeated with
    nothing but white space between, as a mended end of turn would be. mean_logprob: of the trained tokens;
    None when there are none.
    """

    html: Markup
    tokens: int
    trained: int
    cut: int
    doubled: Sequence[int]
    mean_logprob: float | None


def token_view(row: SequenceData, decode: Callable[[int], str] | None, *, limit: int) -> TokenView:
    """Return the first `limit` tokens of a row. Without `decode` the ids stand for the texts."""
    text_of = cache(decode) if decode is not None else None
    trained = [logprob for mask, logprob in zip(row.masked_tokens, row.logprobs, strict=True) if mask != IGNORED]
    doubled = find_doubled_controls(row.tokens, text_of) if text_of is not None else []
    shown = slice(0, limit)
    return TokenView(
        html=Boxes(text_of).html(row.tokens[shown], row.masked_tokens[shown], row.logprobs[shown], set(doubled)),
        tokens=len(row.tokens),
        trained=len(trained),
        cut=max(0, len(row.tokens) - limit),
        doubled=doubled,
        mean_logprob=math.fsum(trained) / len(trained) if trained else None,
    )


@dataclass(frozen=True, slots=True)
class Boxes:
    """Makes boxes of tokens. text_of: gives a token's text; None to show ids. first: place of the first one in its row.
    ids: whether each has a link, `#t` and its place, and screen readers hear where given and trained ones begin."""

    text_of: Callable[[int], str] | None
    first: int = 0
    ids: bool = False

    def html(
        self,
        tokens: Sequence[int],
        masks: Sequence[int],
        logprobs: Sequence[float],
        doubled: Collection[int],
        advantages: Sequence[float] | None = None,
    ) -> Markup:
        """Return the boxes. doubled: marked places in the row."""
        boxes, before = [], None
        for offset, (token, mask, logprob) in enumerate(zip(tokens, masks, logprobs, strict=True)):
            place, kind = self.first + offset, "given" if mask == IGNORED else "trained"
            if self.ids and kind != before:
                boxes.append(f'<b class="unseen"> {kind}: </b>')
            before = kind
            advantage = "" if advantages is None or mask == IGNORED else f" · advantage {advantages[offset]:+.4g}"
            boxes.append(self._box(place, token, None if mask == IGNORED else logprob, place in doubled, advantage))
        return Markup((" " if self.text_of is None else "").join(boxes))

    def _box(self, place: int, token: int, logprob: float | None, doubled: bool, advantage: str) -> str:
        text = str(token) if self.text_of is None else self.text_of(token)
        shown = visible(text).replace("\n", "⏎\n").replace("\t", "⇥\t") or "∅"
        kind = "c" if logprob is None else f"p{sum(math.exp(logprob) < level for level in LEVELS)}"
        title = f"{token}" if logprob is None else f"{token} · {logprob:.4f} · {math.exp(logprob):.1%}{advantage}"
        if _CONTROL_TOKEN.fullmatch(text):
            kind += " k d" if doubled else " k"
        # A screen reader would say the title in the place of a mark or a space.
        name, about = (f' id="t{place}"', "data-about") if self.ids else ("", "title")
        return f'<i{name} class="{kind}" {about}="{title}">{escape(shown)}</i>'


def find_doubled_controls(tokens: Sequence[int], text_of: Callable[[int], str]) -> list[int]:
    """Return the places of a control token repeated with nothing but white space between."""
    kinds = {token: _kind(text_of(token)) for token in set(tokens)}
    found, last = [], ""
    for place, token in enumerate(tokens):
        control = kinds[token]
        if control is None:
            continue
        if control and control == last:
            found.append(place)
        last = control
    return found


def visible(text: str) -> str:
    """Return text with visible control characters; none can reorder or hide its neighbours."""
    return _UNSEEN.sub(_name, text.encode("utf-8", "replace").decode("utf-8"))


def _kind(text: str) -> str | None:
    """Return a control token's text, "" for other text, None for white space."""
    if not text.strip():
        return None
    return text if _CONTROL_TOKEN.fullmatch(text) else ""


def _name(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"
