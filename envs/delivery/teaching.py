"""A teacher's scores as the trainer API has them, and back.

Wire format: atroposlib/envs/base.py ScoredDataGroup, `distill_token_ids` and `distill_logprobs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from atropos_agent.types import IGNORED, TeacherScores

T = TypeVar("T")


class ScoredRow(Protocol):
    """The needed parts of a row."""

    @property
    def tokens(self) -> Sequence[int]: ...

    @property
    def masks(self) -> Sequence[int]: ...

    @property
    def teacher(self) -> TeacherScores | None: ...


@dataclass(frozen=True, slots=True)
class TeacherFields:
    """Atropos' fields for distillation: by sequence, position and k.

    A trained token has the teacher's likeliest tokens, the likeliest first, or itself if these were not asked for;
    another token has none.
    """

    token_ids: Sequence[Sequence[Sequence[int]]] | None = None
    logprobs: Sequence[Sequence[Sequence[float]]] | None = None

    @classmethod
    def of(cls, rows: Iterable[ScoredRow]) -> Self:
        """Return the fields of rows; None in place of both without a teacher."""
        rows = list(rows)
        if not any(row.teacher for row in rows):
            return cls()
        scored = [(row, row.teacher or TeacherScores(())) for row in rows]
        ids = [
            align_to_row(row.masks, scores.ids or _trained_ids(row) if scores.logprobs else ())
            for row, scores in scored
        ]
        return cls(
            ids, [align_to_row(row.masks, scores.top or [[one] for one in scores.logprobs]) for row, scores in scored]
        )

    def to_wire(self) -> dict[str, Any]:
        """Return them by their names."""
        return {"distill_token_ids": self.token_ids, "distill_logprobs": self.logprobs}


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


def _trained_ids(row: ScoredRow) -> Sequence[Sequence[int]]:
    return [[token] for token in row.masks if token != IGNORED]
