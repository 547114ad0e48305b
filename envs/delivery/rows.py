"""Judged rollouts into the rows that the trainer API takes.

Wire format: atroposlib/envs/base.py ScoredDataGroup and atroposlib/api/server.py ScoredData.
"""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from atropos_agent.tokens.record import problems
from atropos_agent.types import IGNORED, Message, SequenceData
from envs.types import RESOURCES, Rollout

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Origin:
    """What the rows of one group share.

    number: the group's in the run; group_id: the same with the run's id, unique over runs.
    step: the trainer's when the group was complete. temperature: of sampling, by which trainers scale their logits.
    carries_tokens: False where the inference server gives no token ids, so that rows are empty.
    """

    number: int
    group_id: str
    task_id: str
    step: int | None = None
    temperature: float = 1.0
    carries_tokens: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """One row for the trainer: a segment of a rollout.

    segment: its number in the rollout. step: the trainer's when the rollout was begun. policy_version: the oldest
    that sampled in it; None where the inference server does not tell. branch: as in `SequenceData`.
    tokens, masks, logprobs: as in `SequenceData`. score: the rollout's reward.
    advantages: per token, 0.0 where not trained; None where the trainer computes them itself.
    resources: what the rollout was made with, such as prompt templates, by name: version and digest.
    """

    origin: Origin
    rollout_id: str
    segment: int
    step: int | None
    policy_version: int | None
    tokens: Sequence[int]
    masks: Sequence[int]
    logprobs: Sequence[float]
    score: float
    advantages: Sequence[float] | None = None
    messages: Sequence[Message] | None = None
    resources: Mapping[str, Any] | None = None
    branch: str = "main"


@dataclass(frozen=True, slots=True)
class DroppedRow:
    """A row that is left out, because it is not what was recorded. tokens: trained ones that it had."""

    rollout_id: str
    segment: int | None
    tokens: int
    reason: str


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """The rows of one group, and those that were left out."""

    origin: Origin
    rows: Sequence[Row]
    dropped: Sequence[DroppedRow] = ()

    @property
    def has_signal(self) -> bool:
        """Tell whether something can be learnt from it: rewards or a row's advantages that differ."""
        if any(row.advantages is not None for row in self.rows):
            return any(value != 0.0 for row in self.rows for value in row.advantages or ())
        return len({row.score for row in self.rows}) > 1

    def to_wire(self) -> dict[str, Any]:
        """Return the group as the trainer API takes it."""
        return to_wire(self.rows, self.dropped, self.origin)


def score_group(rollouts: Sequence[Rollout], origin: Origin, *, messages: bool = False) -> ScoredGroup:
    """Make a group's rows: every segment of every rollout is one, with its rollout's reward as score.

    Each row is first checked against the record of what the inference server was given and what it sampled. One
    that differs is dropped with its reason; its rollout's reward still counts in the baseline, as does that of a
    rollout without any sampled token. Where the server gives no token ids, each rollout has one row of none.

    Advantages are explicit where rows are not just one a rollout, because the trainer's own baseline, a mean over
    rows, would then be wrong, and where a reward has `turn_advantages`. They are (reward - mean) / std over
    *rollouts*, plus the turn's own, and divided among a rollout's segments so that it weighs as much as one of a
    single segment.

    messages: also the chat messages, for readers. Raises ValueError when a reward or a turn's advantage is not finite.
    """
    for rollout in rollouts:
        _check_reward(rollout)
    chosen: list[_Chosen] = []
    dropped: list[DroppedRow] = []
    for rollout in rollouts:
        if origin.carries_tokens:
            _choose_rows(rollout, chosen, dropped)
        else:
            chosen.append(_Chosen(rollout, SequenceData("", (), (), ()), 0.0))
    per_turn = any(rollout.reward.turn_advantages for rollout in rollouts)
    explicit = per_turn or bool(dropped) or len(chosen) != len(rollouts)
    rewards = [rollout.reward.value for rollout in rollouts]
    rows = [
        Row(
            origin,
            one.rollout.id,
            one.segment.segment,
            one.rollout.seat.step,
            one.segment.policy_version,
            one.segment.tokens,
            one.segment.masked_tokens,
            one.segment.logprobs,
            one.rollout.reward.value,
            _advantages(one, rewards) if explicit else None,
            one.rollout.result.to_messages() if messages else None,
            one.rollout.result.metadata.get(RESOURCES),
            one.segment.branch,
        )
        for one in chosen
    ]
    return ScoredGroup(origin, tuple(rows), tuple(dropped))


def to_wire(rows: Sequence[Row], dropped: Sequence[DroppedRow] = (), origin: Origin | None = None) -> dict[str, Any]:
    """Return rows as one ScoredDataGroup: parallel lists, one entry a row.

    `generation_params` say per row whose it is and how it was sampled, and for all what their groups share; what
    they don't share is None there. origin: of a group that may have no rows.
    """
    origins = [asdict(row.origin) for row in rows] or [asdict(origin) for origin in [origin] if origin is not None]
    shared = {
        name: origins[0][name] if all(one[name] == origins[0][name] for one in origins) else None
        for name in ("group_id", "task_id", "step", "temperature", "carries_tokens")
    }
    return {
        "tokens": [list(row.tokens) for row in rows],
        "masks": [list(row.masks) for row in rows],
        "scores": [row.score for row in rows],
        "inference_logprobs": [list(row.logprobs) for row in rows],
        "advantages": _listed([row.advantages for row in rows]),
        "messages": _listed([row.messages for row in rows]),
        "ref_logprobs": None,
        "overrides": None,
        "group_overrides": None,
        "images": None,
        "generation_params": {
            **shared,
            "rollout_ids": [row.rollout_id for row in rows],
            "segments": [row.segment for row in rows],
            "steps": [row.step for row in rows],
            "policy_versions": [row.policy_version for row in rows],
            "resources": [row.resources for row in rows] if any(row.resources for row in rows) else None,
            "branches": [row.branch for row in rows],
            "dropped": [asdict(row) for row in dropped],
        },
    }


def read_rows(wire: Mapping[str, Any], number: int) -> list[Row]:
    """Read the rows of one group from what `to_wire` made of them. number: the group's."""
    params = wire["generation_params"]
    origin = Origin(
        number,
        params["group_id"],
        params["task_id"],
        params["step"],
        params.get("temperature", 1.0),
        params.get("carries_tokens", True),
    )
    return [
        Row(
            origin,
            name,
            params["segments"][place],
            params["steps"][place],
            params["policy_versions"][place],
            wire["tokens"][place],
            wire["masks"][place],
            wire["inference_logprobs"][place],
            wire["scores"][place],
            wire["advantages"] and wire["advantages"][place],
            wire["messages"] and wire["messages"][place],
            (params.get("resources") or {place: None})[place],
            params.get("branches", ["main"] * len(params["rollout_ids"]))[place],
        )
        for place, name in enumerate(params["rollout_ids"])
    ]


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A segment that was checked, and what its trained tokens weigh.

    share: of the rollout's trained tokens. In a loss that averages over a row's tokens and then over
        rows, the advantage times the share makes the rollout's segments weigh as one row would.
    """

    rollout: Rollout
    segment: SequenceData
    share: float


def _check_reward(rollout: Rollout) -> None:
    reward, turns = rollout.reward, rollout.reward.turn_advantages
    if not math.isfinite(reward.value):
        raise ValueError(f"rollout {rollout.id} has the reward {reward.value}")
    if turns and len(turns) != len(rollout.result.steps):
        raise ValueError(f"rollout {rollout.id} has {len(turns)} turn advantages for {len(rollout.result.steps)} turns")
    if not all(math.isfinite(value) for value in turns):
        raise ValueError(f"rollout {rollout.id} has a turn advantage that is not finite")


def _choose_rows(rollout: Rollout, chosen: list[_Chosen], dropped: list[DroppedRow]) -> None:
    """Add a rollout's segments to `chosen`, and those that are not what was recorded to `dropped`."""
    result = rollout.result
    if not result.segments:
        dropped.append(DroppedRow(rollout.id, None, 0, "nothing was sampled"))
    # What is left out for a reason takes no weight from the rest.
    total = sum(len(exchange.ids) for exchange in result.record if not exchange.untrained)
    for segment, problem in zip(result.segments, problems(result.segments, result.record), strict=True):
        if problem is None:
            chosen.append(_Chosen(rollout, segment, segment.trained / total))
            continue
        logger.error("a row of rollout %s is dropped, it is not what was recorded: %s", rollout.id, problem)
        dropped.append(DroppedRow(rollout.id, segment.segment, segment.trained, problem))


def _advantages(chosen: _Chosen, rewards: Sequence[float]) -> list[float]:
    """Return the advantage of each token; 0.0 where it is not trained."""
    reward, segment = chosen.rollout.reward, chosen.segment
    std = statistics.pstdev(rewards)
    value = (reward.value - statistics.fmean(rewards)) / std if std > 0 else 0.0
    turns = []
    if reward.turn_advantages:
        steps = zip(chosen.rollout.result.steps, reward.turn_advantages, strict=True)
        turns = [(step.start, step.completion_tokens, own) for step, own in steps if step.segment == segment.segment]
    return token_advantages(segment.masked_tokens, value, chosen.share, turns)


def token_advantages(
    masks: Sequence[int], value: float, share: float, turns: Sequence[tuple[int, int, float]] = ()
) -> list[float]:
    """Return the advantage of each token of a row; 0.0 where it is not trained.

    value: the rollout's. share: of it that the row has. turns: the place of each reply in the row, its tokens, and what
    is added there."""
    advantages = [0.0 if mask == IGNORED else value * share for mask in masks]
    for start, length, own in turns:
        for place in range(start, start + length):
            advantages[place] += own * share
    return advantages


def _listed(values: Sequence[Sequence[Any] | None]) -> list[list[Any]] | None:
    """Return the values of all rows, or None where none has any."""
    return None if all(value is None for value in values) else [list(value or ()) for value in values]
