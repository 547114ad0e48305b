"""Text into token ids and back, in pieces, with content that can't write control tokens.

Message content is text: `quote` marks the places where content spells a control token, and the
encoder cuts there, so that no content can write one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from atropos_agent.tokens.probes import MARK

CUT = "\ufdd0"
"""Stands between two characters of quoted content that must not be encoded together. A Unicode
noncharacter: valid text never holds it."""

_NOT_TEXT = re.compile(f"[{CUT}{MARK}\ud800-\udfff]")
"""What content may not hold: our own marks, and halves of surrogate pairs, which have no UTF-8."""

_CONTROL = re.compile(r"<[|｜].*[|｜]>|\[/?[A-Z_]+\]|</?(tool|think)\w*>")
"""What control tokens look like that a tokenizer does not declare special."""


class Encoder:
    """A tokenizer that encodes a text in pieces as it would in one.

    special_ids: ids of the tokens that the tokenizer declares special.

    Raises ValueError when no way is found to encode a piece as the continuation of a text.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.added_tokens_decoder
        self.special_ids = {i for i, token in added.items() if token.special}
        self._added_ids = {token.content: i for i, token in added.items()}
        special = {token.content for token in added.values() if token.special}
        source = str(tokenizer.chat_template)
        # Some tokenizers add words and white space as tokens too; those are text like any other.
        named = {content for content in self._added_ids if content in source or _CONTROL.fullmatch(content)}
        controls = special | {content for content in named if content.strip()}
        # The longest first, because one may hold another.
        self._controls = sorted(controls, key=lambda token: (-len(token), token))
        self._anchor, self._anchor_ids = self._find_anchor(special)

    def quote(self, text: str, *, keep: Sequence[str] = ()) -> str:
        """Return content whose spelled-out control tokens will be encoded as text, except those in `keep`."""
        text = not_text_replaced(text)
        for token in self._controls:
            if token in text and token not in keep:
                text = text.replace(token, token[0] + CUT + token[1:])
        return text

    def encode(self, text: str, *, continues: bool = False) -> list[int]:
        """Return ids of rendered text. With `continues` the text follows other text, so a tokenizer that
        marks the start of a text does not do so."""
        first, *rest = text.split(CUT)
        ids = self._encode_after_anchor(first) if continues else self._encode(first)
        for piece in rest:
            ids += self._encode_after_anchor(piece)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return text of ids, control tokens included; incomplete UTF-8 becomes U+FFFD."""
        # Behind the anchor, because SentencePiece tokenizers drop a space at the start of a text.
        return self._decode([*self._anchor_ids, *ids])[len(self._anchor) :]

    def text_of(self, control: int) -> str:
        """Return the text of a control token."""
        return str(self._tokenizer.added_tokens_decoder[control].content)

    def leading_control(self, text: str) -> int | None:
        """Return the control token with which a text starts, apart from white space."""
        text = text.lstrip()
        return next((self._added_ids[token] for token in self._controls if text.startswith(token)), None)

    def controls_in(self, text: str) -> list[str]:
        """Return the control tokens that a text holds, in order of their first appearance."""
        return sorted((token for token in self._controls if token in text), key=text.index)

    def _find_anchor(self, special: set[str]) -> tuple[str, list[int]]:
        """Return text, and its ids, behind which a piece is encoded and decoded as inside a text.

        SentencePiece tokenizers put a space before the first piece of a text, some of them also
        after every control token; behind the anchor they don't."""
        for anchor in [*sorted(special), "\n", "a\n"]:
            ids = self._encode(anchor)
            probes = [self._encode(anchor + text) for text in ("x y", " x", "\nx")]
            if all(probe[: len(ids)] == ids for probe in probes) and [
                self._decode(probe) for probe in (ids, *probes)
            ] == [anchor, anchor + "x y", anchor + " x", anchor + "\nx"]:
                return anchor, ids
        raise ValueError("no way was found to encode text with this tokenizer as a continuation")

    def _encode_after_anchor(self, text: str) -> list[int]:
        return self._encode(self._anchor + text)[len(self._anchor_ids) :] if text else []

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _encode(self, text: str) -> list[int]:
        return [int(i) for i in self._tokenizer.encode(text, add_special_tokens=False)]


def not_text_replaced(text: str) -> str:
    """Return text with U+FFFD for what no valid text holds."""
    return _NOT_TEXT.sub("\ufffd", text)
