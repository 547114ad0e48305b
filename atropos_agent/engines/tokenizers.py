"""Compare the tokenizer in use with an inference server's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from atropos_agent.engines.completions import CompletionsServer
from atropos_agent.tokens.record import first_difference

TEXT = "Tokens: naïve café 漢字 — def f(x):\n\treturn x**2  # 0123456789\n"
"""The text that both encode: words, other scripts, white space and digits, in which tokenizers differ."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Two encodings of a text, as ids, and the first place of a difference."""

    ours: Sequence[int]
    theirs: Sequence[int]
    place: int
    text: str
    """The difference, in words."""


async def compare_tokenizers(server: CompletionsServer, tokenizer: Any, text: str = TEXT) -> Difference | None:
    """Return how the server encodes a text differently from `tokenizer`, or None. Raises EngineError."""
    ours = [int(i) for i in tokenizer.encode(text, add_special_tokens=False)]
    theirs = await server.prompt_ids_of(text)
    # Some servers put the token for the start of a text in front.
    if theirs[-len(ours) :] == ours and len(theirs) <= len(ours) + 1:
        return None
    place = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), 0)
    shown = [[tokenizer.decode([i]) for i in ids[max(0, place - 3) : place + 4]] for ids in (ours, theirs)]
    summary = (
        f"the same text is {len(ours)} ids here and {len(theirs)} there "
        f"({first_difference(ours, theirs)}, that is {shown[0]} instead of {shown[1]})"
    )
    return Difference(ours, theirs, place, summary)
