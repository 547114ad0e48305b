"""Judged rollouts into the rows that the trainer API takes.

Format: atroposlib/envs/base.py ScoredDataGroup and atroposlib/api/server.py ScoredData.
"""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from atropos_agent.tokens.record import problems
from atropos_agent.types import IGNORED, SequenceData
from envs.types import Rollout

logger = logging.getLogger(__name__)

Group = dict[str, Any]
"""A ScoredDataGroup: parallel lists, one entry a row."""

_PARAMS_PER_ROW = ("rollout_ids", "segments", "steps", "policy_versions")
_PER_ROW = ("tokens", "masks", "scores", "advantages", "inference_logprobs", "messages")


@dataclass(frozen=True, slots=True)
class _Row:
    """A segment that was checked, and what its trained tokens weigh.

    share: of the rollout's trained tokens. In a loss that averages over a row's tokens and then over
        rows, the advantage times the share makes the rollout's segments weigh as one row would.
    """

    rollout: Rollout
    segment: SequenceData
    share: float


def build_group(
    rollouts: Sequence[Rollout],
    *,
    group_id: str,
    messages: bool = False,
    step: int | None = None,
    temperature: float = 1.0,
) -> Group:
    """One group: every segment of every rollout is a row with its rollout's reward as score.

    Each row is first checked against the record of what the engine was given and what it sampled. One
    that differs is left out, with its reason in `generation_params["dropped"]`; its rollout's reward
    still counts in the baseline, as does that of a rollout without any sampled token. Where the engine
    gives no token ids, each rollout has one row of none, and `generation_params["carries_tokens"]` is False.

    `advantages` (per token, 0.0 where not trained) are given where rows are not just one a rollout,
    because the trainer's own baseline, a mean over rows, would then be wrong, and where a verdict
    has `turn_advantages`. They are (reward - mean) / std over *rollouts*, plus the turn's own, and
    divided among a rollout's segments so that it weighs as much as one of a single segment.

    `generation_params` say per row its rollout, its segment's number in it, the trainer's step when
    the rollout was judged, and the oldest policy version that sampled in it (None where the engine
    does not tell), and for all the temperature, by which trainers scale their logits.

    Raises ValueError when a reward or a turn's advantage is not finite.
    """
    for rollout in rollouts:
        _check_rewards(rollout)
    rewards = [rollout.verdict.reward for rollout in rollouts]
    rows: list[_Row] = []
    dropped: list[dict[str, Any]] = []
    plain = not all(rollout.result.carries_tokens for rollout in rollouts)
    for rollout in rollouts:
        if plain:
            rows.append(_Row(rollout, SequenceData("", (), (), ()), 0.0))
        else:
            _add_rows(rollout, rows, dropped)
    per_turn = any(rollout.verdict.turn_advantages for rollout in rollouts)
    explicit = per_turn or bool(dropped) or len(rows) != len(rollouts)
    return {
        "tokens": [list(row.segment.tokens) for row in rows],
        "masks": [list(row.segment.masked_tokens) for row in rows],
        "scores": [row.rollout.verdict.reward for row in rows],
        "inference_logprobs": [list(row.segment.logprobs) for row in rows],
        "advantages": [_advantages(row, rewards) for row in rows] if explicit else None,
        "messages": [row.rollout.result.to_messages() for row in rows] if messages else None,
        "ref_logprobs": None,
        "overrides": None,
        "group_overrides": None,
        "images": None,
        "generation_params": {
            "group_id": group_id,
            "task_id": rollouts[0].task.id,
            "rollout_ids": [row.rollout.id for row in rows],
            "segments": [row.segment.segment for row in rows],
            "steps": [row.rollout.metadata.get("step") for row in rows],
            "policy_versions": [row.segment.policy_version for row in rows],
            "step": step,
            "temperature": temperature,
            "dropped": dropped,
            "carries_tokens": not plain,
        },
    }


def has_signal(group: Group) -> bool:
    """Whether something can be learnt from the group: rewards or a row's advantages that differ."""
    if group["advantages"] is not None:
        return any(value != 0.0 for row in group["advantages"] for value in row)
    return len(set(group["scores"])) > 1


@dataclass(slots=True)
class Packer:
    """Makes groups of exactly `size` rows, the only size that the trainer API never holds back.

    A group of that size passes as it is. Rows of other groups, whose advantages are given, are
    cut and joined; fewer than `size` of them wait here for the next.
    """

    size: int
    waiting: list[Group] = field(default_factory=list)

    def add(self, group: Group) -> list[Group]:
        """Groups that can be sent now."""
        if len(group["tokens"]) == self.size:
            return [group]
        self.waiting += [_row(group, i) for i in range(len(group["tokens"]))]
        packed = []
        while len(self.waiting) >= self.size:
            packed.append(_join(self.waiting[: self.size]))
            del self.waiting[: self.size]
        return packed


def _check_rewards(rollout: Rollout) -> None:
    verdict = rollout.verdict
    if not math.isfinite(verdict.reward):
        raise ValueError(f"rollout {rollout.id} has the reward {verdict.reward}")
    if verdict.turn_advantages and len(verdict.turn_advantages) != len(rollout.result.steps):
        raise ValueError(
            f"rollout {rollout.id} has {len(verdict.turn_advantages)} turn advantages for "
            f"{len(rollout.result.steps)} replies"
        )
    if not all(math.isfinite(value) for value in verdict.turn_advantages):
        raise ValueError(f"rollout {rollout.id} has a turn advantage that is not finite")


def _add_rows(rollout: Rollout, rows: list[_Row], dropped: list[dict[str, Any]]) -> None:
    """Add a rollout's rows to `rows`, and those that are not what was recorded to `dropped`."""
    result = rollout.result
    if not result.segments:
        dropped.append({"rollout_id": rollout.id, "segment": None, "tokens": 0, "reason": "nothing was sampled"})
    total = sum(len(exchange.ids) for exchange in result.record)
    for segment, problem in zip(result.segments, problems(result.segments, result.record), strict=True):
        if problem is None:
            rows.append(_Row(rollout, segment, segment.trained / total))
            continue
        logger.error("a row of rollout %s is dropped, it is not what was recorded: %s", rollout.id, problem)
        number = segment.segment
        dropped.append({"rollout_id": rollout.id, "segment": number, "tokens": segment.trained, "reason": problem})


def _advantages(row: _Row, rewards: Sequence[float]) -> list[float]:
    """Per token; 0.0 where it is not trained."""
    verdict, masked = row.rollout.verdict, row.segment.masked_tokens
    std = statistics.pstdev(rewards)
    value = (verdict.reward - statistics.fmean(rewards)) / std if std > 0 else 0.0
    advantages = [0.0 if mask == IGNORED else value * row.share for mask in masked]
    if verdict.turn_advantages:
        for step, own in zip(row.rollout.result.steps, verdict.turn_advantages, strict=True):
            if step.segment == row.segment.segment:
                for place in range(step.start, step.start + step.completion_tokens):
                    advantages[place] += own * row.share
    return advantages


def _row(group: Group, i: int) -> Group:
    params = group["generation_params"]
    return {
        **group,
        **{key: None if group[key] is None else [group[key][i]] for key in _PER_ROW},
        "generation_params": {**params, **{key: [params[key][i]] for key in _PARAMS_PER_ROW}},
    }


def _join(rows: Sequence[Group]) -> Group:
    joined = {key: None if rows[0][key] is None else [value for row in rows for value in row[key]] for key in _PER_ROW}
    params = [row["generation_params"] for row in rows]
    # What the rows don't share has no value for the whole; what was dropped was told with its group.
    shared = {key: value if all(p[key] == value for p in params) else None for key, value in params[0].items()}
    listed = {key: [p[key][0] for p in params] for key in _PARAMS_PER_ROW}
    return {**rows[0], **joined, "generation_params": {**shared, **listed}}
