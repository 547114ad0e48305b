"""The control of a curve: the trainer, with each row's mask shifted by one, so that the places after sampled
ones are trained. Nothing may be learnt by it:

python -m envs.swe learn --preset laptop --agent mini-swe-agent --trainer benchmarks/shifted_masks.py
"""

from collections import Counter
from dataclasses import replace
from typing import Any

from atropos_agent.types import IGNORED
from envs.lab import trainer

_rows_of = trainer.rows_of


def shifted(row: trainer.Row) -> trainer.Row:
    """Return what an off-by-one in the mask makes of a row."""
    pairs = zip(row.tokens[1:], row.masked_tokens[:-1], strict=True)
    masked = [IGNORED, *(token if label != IGNORED else IGNORED for token, label in pairs)]
    trained = sum(label != IGNORED for label in masked)  # the last place has none after it
    return replace(row, masked_tokens=masked, logprobs=row.logprobs[:trained], advantages=row.advantages[:trained])


def rows_of(*args: Any, **options: Any) -> tuple[list[trainer.Row], Counter[str]]:
    rows, left_out = _rows_of(*args, **options)
    return [shifted(row) for row in rows], left_out


if __name__ == "__main__":
    trainer.rows_of = rows_of
    trainer.main()
