"""Text into token ids and back, in pieces, with content that can't write control tokens.

Message content is text: `quote` marks the places at which content spells a control token, and the
encoder cuts there, so no content can write one. `quote_ids` does the same for a model's samples:
sampled control tokens stay such, and those spelled in other ids stay text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from atropos_agent.tokens.probes import MARK
from atropos_agent.types import THINK, THINK_END

CUT = "\ufdd0"
"""Stands between two characters of quoted content that must not be encoded together. A Unicode
noncharacter: valid text never holds it."""

SPELLED = "\ufdd2"
"""Stands beside a thinking tag that was spelled in ordinary ids: a template sees the tag whole, and the encoder
writes it as text."""

_SPELLED_TAG = re.compile(f"{SPELLED}(?:{THINK}|{THINK_END})|(?:{THINK}|{THINK_END}){SPELLED}")

_EMPTY_THOUGHT = re.compile(f"{THINK}{SPELLED}(\\s*){SPELLED}{THINK_END}")

_NOT_TEXT = re.compile(f"[{CUT}{MARK}{SPELLED}\ud800-\udfff]")
"""Characters that content may not hold: our own marks, and halves of surrogate pairs, which have no UTF-8."""

_CONTROL = re.compile(r"<[|｜].*[|｜]>|\[/?[A-Z_]+\]|</?(tool|think)\w*>")
"""The look of control tokens that a tokenizer does not declare special."""


class Encoder:
    """A tokenizer that encodes a text in pieces as it would in one.

    special_ids: ids of the tokens that the tokenizer declares special. control_ids: these, and ids of other tokens that
        a template writes or that look like them.

    Raises ValueError when no way is found to encode a piece as the continuation of a text.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._backend = _backend_of(tokenizer)
        added = tokenizer.added_tokens_decoder
        self.special_ids = {i for i, token in added.items() if token.special}
        self._texts = {i: str(token.content) for i, token in added.items()}
        self._added_ids = {text: i for i, text in self._texts.items()}
        special = {token.content for token in added.values() if token.special}
        source = str(tokenizer.chat_template)
        # Some tokenizers add words and white space as tokens too; those are text like any other.
        named = {content for content in self._added_ids if content in source or _CONTROL.fullmatch(content)}
        controls = special | {content for content in named if content.strip()}
        self.control_ids = {self._added_ids[content] for content in controls}
        # The longest first, because one may hold another. Nothing can be put within one of a single character.
        self._controls = sorted((token for token in controls if len(token) > 1), key=lambda token: (-len(token), token))
        starts = {token[:end] for token in controls for end in range(1, len(token))}
        self._heads = tuple(token[:-n] for token in controls for n in range(1, len(token)) if token[-n:] in starts)
        """Beginnings of control tokens that end as one begins: before that one they would be a token with its start."""
        self._anchor, self._anchor_ids = self._find_anchor(special)

    def quote(self, text: str, *, keep: Sequence[str] = ()) -> str:
        """Return content with its spelled-out control tokens quoted, to be encoded as text, except those in `keep`."""
        return self.quote_rest(replace_invalid_text(text), keep=keep)

    def quote_rest(self, text: str, *, keep: Sequence[str] = ()) -> str:
        """Quote, as `quote` does, our own text with quoted content in it."""
        for token in self._controls:
            # Again and again, because one that ends as it begins (MiniMax's [e~[) may share a character with the next.
            while token in text and token not in keep:
                text = text.replace(token, token[0] + CUT + token[1:])
        if self._heads and (bare := text.rstrip()).endswith(self._heads):
            place = len(bare) + 1 - max(len(head) for head in self._heads if bare.endswith(head))
            text = text[:place] + CUT + text[place:]
        return text

    def quote_ids(self, ids: Sequence[int]) -> str:
        """Return the text of sampled ids, quoted if other ids spell a control token.

        Thinking tags stay such for the template, in whichever ids they were sampled."""
        if self.control_ids.isdisjoint(ids):
            return self._quote_ordinary(ids)
        pieces = [
            "".join(map(self.text_of, run)) if sampled else self._quote_ordinary(list(run))
            for sampled, run in groupby(ids, key=self.control_ids.__contains__)
        ]
        quoted = "".join(pieces)
        # A tokenizer whose pieces are another text than the whole would have words of its own put in.
        whole = self.decode(ids) if len(pieces) > 1 else None
        return quoted if whole is None or unquote(quoted) == replace_invalid_text(whole) else self.quote(whole)

    def encode(self, text: str, *, continues: bool = False) -> list[int]:
        """Return ids of rendered text. With `continues` the text follows other text, so a tokenizer that
        marks the start of a text does not do so."""
        if SPELLED in text:
            text = _SPELLED_TAG.sub(lambda tag: tag[0].strip(SPELLED).replace("<", f"<{CUT}"), text)
        first, *rest = text.replace(SPELLED, "").split(CUT)
        ids = self._encode_after_anchor(first) if continues else self._encode(first)
        for piece in rest:
            ids += self._encode_after_anchor(piece)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return text of ids, control tokens included; incomplete UTF-8 becomes U+FFFD."""
        # Behind the anchor, because SentencePiece tokenizers drop a space at the start of a text.
        return self._decode([*self._anchor_ids, *ids])[len(self._anchor) :]

    def normalized(self, text: str) -> str:
        """Return a text as the tokenizer takes it: some change it before they encode it, to NFC for example."""
        normalizer = getattr(getattr(self._tokenizer, "backend_tokenizer", None), "normalizer", None)
        return text if normalizer is None else str(normalizer.normalize_str(text))

    def knows(self, token: int) -> bool:
        """Tell whether an id is a token of the vocabulary."""
        try:
            return token >= 0 and self._tokenizer.convert_ids_to_tokens(token) is not None
        except (LookupError, OverflowError):
            return False

    def controls(self, texts: Sequence[str]) -> frozenset[int]:
        """Return the ids of the control tokens among these texts."""
        return frozenset(i for text in texts if (i := self._added_ids.get(text)) in self.control_ids and i is not None)

    def text_of(self, control: int) -> str:
        """Return the text of a control token."""
        return self._texts[control]

    def leading_control(self, text: str) -> int | None:
        """Return the control token at the start of a text, apart from white space."""
        text = text.lstrip()
        return next((self._added_ids[token] for token in self._controls if text.startswith(token)), None)

    def controls_in(self, text: str) -> list[str]:
        """Return the control tokens in a text, in order of their first appearance."""
        return sorted((token for token in self._controls if token in text), key=text.index)

    def _find_anchor(self, special: set[str]) -> tuple[str, list[int]]:
        """Return text, and its ids, after which a piece is encoded and decoded as inside a text.

        SentencePiece tokenizers put a space before the first piece of a text, some of them also
        after every control token; after the anchor they don't."""
        for anchor in [*sorted(special), "\n", "a\n"]:
            ids = self._encode(anchor)
            probes = [self._encode(anchor + text) for text in ("x y", " x", "\nx")]
            if all(probe[: len(ids)] == ids for probe in probes) and [
                self._decode(probe) for probe in (ids, *probes)
            ] == [anchor, anchor + "x y", anchor + " x", anchor + "\nx"]:
                return anchor, ids
        raise ValueError("no way was found to encode text with this tokenizer as a continuation")

    def _quote_ordinary(self, ids: Sequence[int]) -> str:
        """Return the text of ids without control tokens, with every control token in it quoted."""
        text = self.quote(self.decode(ids), keep=(THINK, THINK_END))
        if self._added_ids.get(THINK) in self.control_ids:
            text = text.replace(THINK, THINK + SPELLED)
        if self._added_ids.get(THINK_END) in self.control_ids:
            text = text.replace(THINK_END, SPELLED + THINK_END)
        # Templates ask whether there is any thinking between the tags.
        return _EMPTY_THOUGHT.sub(rf"{SPELLED}{THINK}\1{THINK_END}{SPELLED}", text)

    def _encode_after_anchor(self, text: str) -> list[int]:
        return self._encode(self._anchor + text)[len(self._anchor_ids) :] if text else []

    def _decode(self, ids: Sequence[int]) -> str:
        if self._backend is not None:
            return str(self._backend.decode(ids, skip_special_tokens=False))
        return str(self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _encode(self, text: str) -> list[int]:
        backend = self._backend
        # Others who use the tokenizer may leave these set; its own `encode` takes them back.
        if backend is None or backend.truncation or backend.padding or backend.encode_special_tokens:
            return [int(i) for i in self._tokenizer.encode(text, add_special_tokens=False)]
        return list(backend.encode_batch_fast([text], add_special_tokens=False)[0].ids)


def _backend_of(tokenizer: Any) -> Any:
    """Return the tokenizer's own encoder and decoder; None if it adds anything of its own to them.

    The work of transformers around it, such as to ask of each id whether it is a tensor, takes longer."""
    of = type(tokenizer)
    methods = [getattr(of, name, None) for name in ("encode", "decode", "_encode_plus", "_decode")]
    own = [getattr(method, "__qualname__", "").partition(".")[0] for method in methods]
    is_plain = own == ["PreTrainedTokenizerBase"] * 2 + ["TokenizersBackend"] * 2
    return tokenizer.backend_tokenizer if is_plain and not tokenizer.split_special_tokens else None


def unquote(text: str) -> str:
    """Return quoted content as a person reads it."""
    return text.replace(CUT, "").replace(SPELLED, "")


def replace_invalid_text(text: str) -> str:
    """Return text with U+FFFD for characters outside of valid text."""
    return _NOT_TEXT.sub("\ufffd", text)
