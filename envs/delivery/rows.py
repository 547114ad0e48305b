"""Judged rollouts into rows for the trainer API.

Wire format: atroposlib/envs/base.py ScoredDataGroup and atroposlib/api/server.py ScoredData.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any, Protocol

from atropos_agent.tokens.record import problems
from atropos_agent.types import IGNORED, NO_LOGPROB, AgentResult, Message, SequenceData, TeacherScores
from envs.delivery.estimators import USUAL, Estimator
from envs.delivery.teaching import read_scores, teacher_fields
from envs.delivery.worth import Loss, Turn, teacher_advantages, token_advantages, token_versions
from envs.types import RESOURCES, Reward, Seat

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Origin:
    """The values shared by the rows of one group.

    number: the group's in the run; group_id: the same with the run's id, unique over runs.
    step: the trainer's when the group was complete. temperature: of sampling; trainers scale their logits by it.
    carries_tokens: False if the inference server gives no token ids, so rows are empty.
    teacher_weight: the factor on tokens' advantages from a teacher.
    """

    number: int
    group_id: str
    task_id: str
    step: int | None = None
    temperature: float = 1.0
    carries_tokens: bool = True
    teacher_weight: float = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """One row for the trainer: a segment of a rollout, with its worth in parts.

    segment: its number in the rollout. step: the trainer's when the rollout was begun. policy_version: the oldest
    sampled from in it; None if the inference server does not report it. branch, experts: as in `SequenceData`.
    tokens, masks, logprobs: as in `SequenceData`. score: the rollout's reward.
    advantage: the rollout's, of its group. share: of the rollout's trained tokens, the part in this row.
    turns: the replies in it, with their own versions and advantages.
    resources: the rollout's resources, such as prompt templates, by name: version and digest.
    teacher: a teacher's scores of the trained tokens; None without a teacher.
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
    advantage: float = 0.0
    share: float = 1.0
    turns: Sequence[Turn] = ()
    messages: Sequence[Message] | None = None
    resources: Mapping[str, Any] | None = None
    branch: str = "main"
    experts: str | None = None
    teacher: TeacherScores | None = None

    def advantages(self, loss: Loss) -> list[float]:
        """Return the advantage of each token for a trainer of this loss; 0.0 if it is not trained."""
        values = token_advantages(self.masks, self.advantage, self.share, self.turns, loss)
        if self.teacher is None or not self.is_taught:
            return values
        weight = self.origin.teacher_weight * (self.share if loss is Loss.ROWS else 1.0)
        taught = teacher_advantages(self.masks, self.logprobs, self.teacher.logprobs)
        return [value + weight * own for value, own in zip(values, taught, strict=True)]

    @property
    def is_taught(self) -> bool:
        """Tell whether each of its tokens has an advantage of its own from a teacher."""
        return self.teacher is not None and self.origin.teacher_weight != 0

    @property
    def versions(self) -> list[int | None]:
        """Return the policy version of each token; None if it was not sampled, or is not known."""
        return token_versions(self.masks, self.turns, self.policy_version)

    @property
    def sampled(self) -> list[int]:
        """Return 1 for each trained token, 0 for the others."""
        return [int(mask != IGNORED) for mask in self.masks]

    def apart(self) -> Iterator[Row]:
        """Yield the row once for each of its tokens' advantages, with those tokens alone to train: for trainers with
        one advantage a row. Their shares sum up to the row's. A teacher's scores are left out. Raises ValueError if a
        teacher gave each token its own."""
        if self.is_taught:
            raise ValueError(
                "--env.teacher_weight gives each token its own advantage, and this trainer takes one a row; "
                "leave it out"
            )
        values = self.advantages(Loss.TOKENS)
        trained = sum(self.sampled)
        chosen = dict.fromkeys(value for value, mask in zip(values, self.masks, strict=True) if mask != IGNORED)
        for one in chosen:
            mine = [mask != IGNORED and value == one for value, mask in zip(values, self.masks, strict=True)]
            yield replace(
                self,
                masks=[mask if own else IGNORED for mask, own in zip(self.masks, mine, strict=True)],
                logprobs=[logprob if own else NO_LOGPROB for logprob, own in zip(self.logprobs, mine, strict=True)],
                advantage=one,
                share=self.share * sum(mine) / trained,
                turns=[replace(turn, advantage=0.0) for turn in self.turns],
                teacher=None,
            )


@dataclass(frozen=True, slots=True)
class DroppedRow:
    """A row left out because it differs from the record. tokens: trained ones in it."""

    rollout_id: str
    segment: int | None
    tokens: int
    reason: str


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """The rows of one group, and those left out."""

    origin: Origin
    rows: Sequence[Row]
    dropped: Sequence[DroppedRow] = ()

    @property
    def has_signal(self) -> bool:
        """Tell whether something can be learnt from it: whether any advantage is not 0."""
        return any(row.advantage or row.is_taught or any(turn.advantage for turn in row.turns) for row in self.rows)

    def to_wire(self) -> dict[str, Any]:
        """Return the group as the trainer API takes it."""
        return to_wire(self.rows, self.dropped, self.origin)


class ScorableRollout(Protocol):
    """The parts needed of a rollout, also of a saved one."""

    @property
    def id(self) -> str: ...

    @property
    def result(self) -> AgentResult: ...

    @property
    def reward(self) -> Reward: ...

    @property
    def seat(self) -> Seat: ...


def score_group(
    rollouts: Sequence[ScorableRollout], origin: Origin, estimator: Estimator = USUAL, *, messages: bool = False
) -> ScoredGroup:
    """Make a group's rows: every segment of every rollout is one, with its rollout's reward as score.

    Each row is first checked against the record of the inference server's prompts and samples. If one
    differs, the model's prompts are not known for sure, and so its rollout's reward is an infrastructure failure's:
    all its rows are dropped with their reason, and the reward is no part of the baseline. A rollout without any
    sampled token has no row, but its reward is a measurement and counts. If the server gives no token ids, each
    rollout has one row of none.

    Advantages are made by the estimator over *rollouts*, never over rows, and kept apart from the row's share and the
    turns' own. messages: also the chat messages, for readers. Raises ValueError when a reward or a turn's advantage is
    not finite.
    """
    origin = replace(origin, teacher_weight=estimator.teacher_weight)
    dropped: list[DroppedRow] = []
    sound: list[ScorableRollout] = []
    for rollout in rollouts:
        _check_reward(rollout)
        unsound = _dropped_rows(rollout) if origin.carries_tokens else []
        dropped += unsound
        if not any(row.segment is not None for row in unsound):
            sound.append(rollout)
    values = estimator.advantages(
        [rollout.reward.value for rollout in sound], [rollout.result.sampled_tokens for rollout in sound]
    )
    rows = [
        Row(
            origin,
            rollout.id,
            segment.segment,
            rollout.seat.step,
            segment.policy_version,
            segment.tokens,
            segment.masked_tokens,
            segment.logprobs,
            rollout.reward.value,
            value,
            segment.trained / rollout.result.sampled_tokens if origin.carries_tokens else 1.0,
            _turns(rollout, segment, value, estimator) if origin.carries_tokens else (),
            rollout.result.to_messages() if messages else None,
            rollout.result.metadata.get(RESOURCES),
            segment.branch,
            segment.experts,
            segment.teacher,
        )
        for rollout, value in zip(sound, values, strict=True)
        for segment in (rollout.result.segments if origin.carries_tokens else [SequenceData("", (), (), ())])
    ]
    return ScoredGroup(origin, tuple(rows), tuple(dropped))


def to_wire(rows: Sequence[Row], dropped: Sequence[DroppedRow] = (), origin: Origin | None = None) -> dict[str, Any]:
    """Return rows as one ScoredDataGroup: parallel lists, one entry a row.

    `advantages` are combined for the mean over rows of the mean over a row's tokens, the loss of Atropos' trainers.
    `generation_params` hold per row its rollout, its sampling and its worth in parts, for destinations with another
    combination, and for all rows the values shared by their groups; values not shared are None. Each of `turns` is
    start, length, number, policy version and advantage (`Turn`). origin: of a group, possibly without rows.
    """
    origins = [asdict(row.origin) for row in rows] or [asdict(origin) for origin in [origin] if origin is not None]
    shared = {
        name: origins[0][name] if all(one[name] == origins[0][name] for one in origins) else None
        for name in ("group_id", "task_id", "step", "temperature", "carries_tokens", "teacher_weight")
    }
    return {
        "tokens": [list(row.tokens) for row in rows],
        "masks": [list(row.masks) for row in rows],
        "scores": [row.score for row in rows],
        "inference_logprobs": [list(row.logprobs) for row in rows],
        "advantages": [row.advantages(Loss.ROWS) for row in rows],
        "messages": _lists_or_none([row.messages for row in rows]),
        "ref_logprobs": None,
        "overrides": None,
        "group_overrides": None,
        "images": None,
        **teacher_fields((row.masks, row.teacher) for row in rows),
        "generation_params": {
            **shared,
            "rollout_ids": [row.rollout_id for row in rows],
            "segments": [row.segment for row in rows],
            "steps": [row.step for row in rows],
            "policy_versions": [row.policy_version for row in rows],
            "rollout_advantages": [row.advantage for row in rows],
            "shares": [row.share for row in rows],
            "turns": [[list(astuple(turn)) for turn in row.turns] for row in rows],
            "resources": [row.resources for row in rows] if any(row.resources for row in rows) else None,
            "branches": [row.branch for row in rows],
            "routed_experts": [row.experts for row in rows] if any(row.experts for row in rows) else None,
            "teacher_logprobs": _lists_or_none([row.teacher.logprobs if row.teacher else None for row in rows]),
            "dropped": [asdict(row) for row in dropped],
        },
    }


def read_rows(wire: Mapping[str, Any], number: int = 0) -> list[Row]:
    """Read the rows of one group from the form of `to_wire`. number: the group's."""
    params = wire["generation_params"]
    count = len(params["rollout_ids"])
    origin = Origin(
        number,
        params["group_id"],
        params["task_id"],
        params["step"],
        params.get("temperature", 1.0),
        params.get("carries_tokens", True),
        params.get("teacher_weight") or 0.0,
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
            params["rollout_advantages"][place],
            params["shares"][place],
            [Turn(*turn) for turn in params["turns"][place]],
            wire["messages"] and wire["messages"][place],
            (params.get("resources") or {place: None})[place],
            params.get("branches", ["main"] * count)[place],
            (params.get("routed_experts") or [None] * count)[place],
            read_scores(wire, place),
        )
        for place, name in enumerate(params["rollout_ids"])
    ]


def _check_reward(rollout: ScorableRollout) -> None:
    reward, turns = rollout.reward, rollout.reward.turn_advantages
    if not math.isfinite(reward.value):
        raise ValueError(f"rollout {rollout.id} has the reward {reward.value}")
    if turns and len(turns) != len(rollout.result.steps):
        raise ValueError(f"rollout {rollout.id} has {len(turns)} turn advantages for {len(rollout.result.steps)} turns")
    if not all(math.isfinite(value) for value in turns):
        raise ValueError(f"rollout {rollout.id} has a turn advantage that is not finite")


def _dropped_rows(rollout: ScorableRollout) -> list[DroppedRow]:
    """Return the rows left out of a rollout: all of them if one differs from the record."""
    segments = rollout.result.segments
    if not segments:
        return [DroppedRow(rollout.id, None, 0, "nothing was sampled")]
    found = problems(segments, rollout.result.record)
    if not any(found):
        return []
    for problem in filter(None, found):
        logger.error("the rows of rollout %s are dropped, one is not what was recorded: %s", rollout.id, problem)
    others = "another row of the rollout is not what was recorded"
    return [
        DroppedRow(rollout.id, segment.segment, segment.trained, problem or others)
        for segment, problem in zip(segments, found, strict=True)
    ]


def _turns(rollout: ScorableRollout, segment: SequenceData, advantage: float, estimator: Estimator) -> list[Turn]:
    """Return the replies of a segment. advantage: the rollout's."""
    own = rollout.reward.turn_advantages or [0.0] * len(rollout.result.steps)
    return [
        Turn(
            *(step.start, step.completion_tokens, step.index, step.policy_version),
            float(value) + estimator.summary_adjustment(step.branch, advantage),
        )
        for step, value in zip(rollout.result.steps, own, strict=True)
        if step.segment == segment.segment
    ]


def _lists_or_none(values: Sequence[Sequence[Any] | None]) -> list[list[Any]] | None:
    """Return the values of all rows, or None if none has any."""
    return None if all(value is None for value in values) else [list(value or ()) for value in values]
