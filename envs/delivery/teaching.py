"""A teacher's scores as the trainer API has them, and back.

Wire format: atroposlib/envs/base.py ScoredDataGroup, `distill_token_ids` and `distill_logprobs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from atropos_agent.types import IGNORED, TeacherScores

T = TypeVar("T")


def teacher_fields(rows: Iterable[tuple[Sequence[int], TeacherScores | None]]) -> dict[str, Any]:
    """Return Atropos' fields for distillation, by sequence, position and k; None in place of both without a teacher.

    A trained token has the teacher's likeliest tokens, the likeliest first, or itself if these were not asked for;
    another token has none. rows: the masks and the scores of each.
    """
    ids: list[Any] = []
    logprobs: list[Any] = []
    taught = False
    for masks, scores in rows:
        taught |= scores is not None
        given = scores or TeacherScores(())
        alone = [[token] for token in masks if token != IGNORED] if given.logprobs else ()
        ids.append(align_to_row(masks, given.ids or alone))
        logprobs.append(align_to_row(masks, given.top or [[one] for one in given.logprobs]))
    return {"distill_token_ids": ids if taught else None, "distill_logprobs": logprobs if taught else None}


def read_scores(wire: Mapping[str, Any], place: int) -> TeacherScores | None:
    """Return the scores of a row in the trainer API's form; None without any."""
    logprobs = (wire["generation_params"].get("teacher_logprobs") or {place: None})[place]
    if not logprobs:
        return None
    ids, top = ([one for one in wire[f"distill_{name}"][place] if one] for name in ("token_ids", "logprobs"))
    alone = ids == [[token] for token in wire["masks"][place] if token != IGNORED]
    return TeacherScores(logprobs) if alone else TeacherScores(logprobs, ids, top)


def align_to_row(masks: Sequence[int], values: Iterable[Sequence[T]]) -> list[Sequence[T]]:
    """Return values of the trained tokens at their places in the row, and nothing at the others."""
    found = iter(values)
    return [() if mask == IGNORED else next(found, ()) for mask in masks]
