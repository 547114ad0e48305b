"""Checks of the trainer API's rows, as a careful trainer would make them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from atropos_agent.types import IGNORED, NO_LOGPROB


def check_group(group: Mapping[str, Any]) -> list[str]:
    """Return the problems of a group from `GET /batch`; an empty list when it can be trained on.

    Parallel lists `tokens`, `masks`, `scores`, `inference_logprobs` and, if there are any,
    `advantages`, with `generation_params["rollout_ids"]` naming the rollout of each row. At most
    one problem of each kind is reported a row, with its first place.
    """
    tokens = group.get("tokens")
    if not isinstance(tokens, Sequence) or not tokens:
        return ["the group has no rows"]
    problems = []
    for name in ("masks", "scores", "inference_logprobs"):
        if not _has_length(group.get(name), len(tokens)):
            problems.append(f"{name}: {_length(group.get(name))} for {len(tokens)} rows")
    advantages = group.get("advantages")
    if advantages is not None and not _has_length(advantages, len(tokens)):
        problems.append(f"advantages: {_length(advantages)} for {len(tokens)} rows")
    problems += _rollout_ids(group, len(tokens))
    if problems:
        return problems
    for place, ids in enumerate(tokens):
        found = [
            *_score(group["scores"][place]),
            *_row(ids, group["masks"][place], group["inference_logprobs"][place]),
            *([] if advantages is None else _advantages(advantages[place], len(ids))),
        ]
        problems += [f"row {place}: {problem}" for problem in found]
    return problems


def _rollout_ids(group: Mapping[str, Any], rows: int) -> list[str]:
    params = group.get("generation_params")
    if not isinstance(params, Mapping):
        return ["generation_params: missing"]
    names = params.get("rollout_ids")
    if not _has_length(names, rows):
        return [f"generation_params: {_length(names)} in rollout_ids for {rows} rows"]
    if not all(isinstance(name, str) and name for name in names):
        return ["generation_params: a rollout id is empty or no text"]
    scores = group.get("scores")
    if not _has_length(scores, rows):
        return []  # reported by the caller
    first: dict[str, Any] = {}
    for name, score in zip(names, scores, strict=True):
        # A NaN differs from itself; it is reported for its row.
        if first.setdefault(name, score) != score and _is_finite(score):
            return [f"scores: rollout {name} has {first[name]} in one row and {score} in another"]
    return []


def _score(score: Any) -> list[str]:
    return [] if _is_finite(score) else [f"the score {score!r} is no finite number"]


def _row(tokens: Any, masks: Any, logprobs: Any) -> list[str]:
    if not isinstance(tokens, Sequence) or not tokens:
        return ["no tokens"]
    if not _has_length(masks, len(tokens)) or not _has_length(logprobs, len(tokens)):
        return [f"{len(tokens)} tokens, {_length(masks)} in masks and {_length(logprobs)} in inference_logprobs"]
    found: dict[str, str] = {}
    for place, (token, mask, logprob) in enumerate(zip(tokens, masks, logprobs, strict=True)):
        if mask == IGNORED:
            if logprob != NO_LOGPROB:
                found.setdefault("context", f"token {place} is not trained but has the logprob {logprob!r}")
        elif mask != token:
            found.setdefault("mask", f"token {place} is {token!r} but its mask says {mask!r}")
        elif not _is_finite(logprob) or logprob > 0:
            found.setdefault("logprob", f"token {place} is trained with the impossible logprob {logprob!r}")
    if all(mask == IGNORED for mask in masks):
        found["empty"] = "no trained token"
    return list(found.values())


def _advantages(advantages: Any, tokens: int) -> list[str]:
    if not _has_length(advantages, tokens):
        return [f"{tokens} tokens, {_length(advantages)} in advantages"]
    place = next((place for place, value in enumerate(advantages) if not _is_finite(value)), None)
    return [] if place is None else [f"token {place} has the advantage {advantages[place]!r}"]


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _has_length(value: Any, length: int) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, list | tuple) and len(value) == length


def _length(value: Any) -> str:
    return f"{len(value)} values" if isinstance(value, list | tuple) else "none"
