"""Show a page of a row's tokens: each with its mask, logprob, advantage and turn."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any

from markupsafe import Markup

from atropos_agent.types import IGNORED
from envs.delivery.estimators import USUAL, Estimator
from envs.delivery.worth import Turn, token_advantages
from envs.records.atif import KEY
from envs.records.token_view import LEVELS, Boxes, find_doubled_controls

PAGE = 4000
"""Tokens on one page."""
CELLS = 200
"""Parts of the strip of a whole row."""


class NoRow(ValueError):
    """A rollout has no such row, or the row no such token."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A part of the strip. trained: share of its tokens. level: of their mean probability, 0 (likely) to 5."""

    start: int
    trained: float
    level: int


@dataclass(frozen=True, slots=True)
class TokenPage:
    """Tokens `first` to `last` of a row. turns: (number, place of the first token) of the replies in it. doubled:
    control tokens that stand twice. spans: first and last places of trained tokens in the whole row. weights: the step
    of the oldest weights that sampled in it.

    advantage: the rollout's, None where the group is not complete or lengths count, too; share: what a rollout of
    several rows gives this one of it; by_turn: whether turns have advantages of their own beside.
    """

    html: Markup
    row: int
    rows: int
    branch: str
    first: int
    last: int
    tokens: int
    trained: int
    mean_logprob: float | None
    weights: int | None
    doubled: Sequence[int]
    turns: Sequence[tuple[int, int]]
    strip: Sequence[Cell]
    spans: Sequence[tuple[int, int]]
    advantage: float | None
    share: float
    by_turn: bool


def token_page(
    document: Mapping[str, Any],
    decode: Callable[[int], str] | None,
    *,
    row: int,
    at: int,
    rewards: Sequence[float] | None,
    estimator: Estimator = USUAL,
) -> TokenPage:
    """Return the page that holds the token `at`. rewards: of the whole group; None where it is not complete.
    estimator: the run's.

    Raises NoRow."""
    ours = document["extra"][KEY]
    rows = ours["segments"]
    segment = _row(rows, row, at)
    tokens, masks, logprobs = segment["tokens"], segment["masked_tokens"], segment["logprobs"]
    first = at - at % PAGE
    last = min(first + PAGE, len(tokens))
    own = [logprob for mask, logprob in zip(masks, logprobs, strict=True) if mask != IGNORED]
    number = segment.get("segment", row)
    steps = [step["extra"][KEY] | step["metrics"] for step in document["steps"] if KEY in step.get("extra", {})]
    mine = [step for step in steps if step["segment"] == number]
    advantage = _advantage(ours, rewards, estimator)
    sampled = sum(len(exchange["ids"]) for exchange in ours.get("record", ())) or len(own)
    share = len(own) / sampled if len(rows) > 1 and sampled else 1.0
    by_turn = list((ours.get("reward") or {}).get("turn_advantages", ()))
    if advantage is not None:
        given = by_turn or [0.0] * len(steps)
        beside = (estimator.summary_adjustment(step.get("branch", "main"), advantage) for step in steps)
        values = [one + other for one, other in zip(given, beside, strict=True)]
        by_turn = values if any(values) else by_turn
    weights = None
    if advantage is not None:
        spans = [_turn(step, by_turn) for step in mine if by_turn]
        weights = token_advantages(masks, advantage, share, spans)[first:last]
    text_of = cache(decode) if decode is not None else None
    boxes = Boxes(text_of, first=first, ids=True)
    doubled = find_doubled_controls(tokens, text_of) if text_of is not None else []
    html = boxes.html(tokens[first:last], masks[first:last], logprobs[first:last], set(doubled), weights)
    return TokenPage(
        html=html,
        row=row,
        rows=len(rows),
        branch=str(segment.get("branch", "main")),
        first=first,
        last=last,
        tokens=len(tokens),
        trained=len(own),
        mean_logprob=math.fsum(own) / len(own) if own else None,
        weights=segment.get("policy_version"),
        doubled=doubled,
        turns=[(step["index"] + 1, step["start"]) for step in mine],
        strip=_strip(masks, logprobs),
        spans=_spans(masks),
        advantage=advantage,
        share=share,
        by_turn=bool(by_turn),
    )


def _turn(step: Mapping[str, Any], by_turn: Sequence[float]) -> Turn:
    return Turn(step["start"], step["completion_tokens"], step["index"], advantage=by_turn[step["index"]])


def _row(rows: Sequence[Mapping[str, Any]], row: int, at: int) -> Mapping[str, Any]:
    """Return a row, in which there is a token `at`. Raises NoRow."""
    if not 0 <= row < len(rows):
        raise NoRow(f"the rollout has {len(rows)} rows; there is no row {row}")
    tokens = len(rows[row]["tokens"])
    if not 0 <= at < max(1, tokens):
        raise NoRow(f"the row has {tokens} tokens; there is no token {at}")
    return rows[row]


def advantage_of(reward: float, rewards: Sequence[float], estimator: Estimator = USUAL) -> float | None:
    """Return what a reward is worth among those of a group; None where rewards alone don't tell."""
    if estimator.length_penalty:
        return None
    return dict(zip(rewards, estimator.advantages(rewards), strict=True)).get(reward)


def _advantage(ours: Mapping[str, Any], rewards: Sequence[float] | None, estimator: Estimator) -> float | None:
    if not rewards:
        return None
    reward = (ours.get("reward") or {}).get("value", ours["verdict"]["reward"])
    return advantage_of(float(reward), rewards, estimator)


def _spans(masks: Sequence[int]) -> list[tuple[int, int]]:
    runs = ([place for place, _ in run] for given, run in groupby(enumerate(masks), _given) if not given)
    return [(run[0], run[-1]) for run in runs]


def _given(align_to_row: tuple[int, int]) -> bool:
    return align_to_row[1] == IGNORED


def _strip(masks: Sequence[int], logprobs: Sequence[float]) -> list[Cell]:
    width = max(1, -(-len(masks) // CELLS))
    cells = []
    for start in range(0, len(masks), width):
        own = [
            math.exp(logprob)
            for mask, logprob in zip(masks[start : start + width], logprobs[start : start + width], strict=True)
            if mask != IGNORED
        ]
        mean = statistics.fmean(own) if own else 1.0
        cells.append(Cell(start, len(own) / min(width, len(masks) - start), sum(mean < level for level in LEVELS)))
    return cells
