"""The worth of a row, in parts, and their combination for a trainer's loss."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from atropos_agent.types import IGNORED


class Loss(enum.Enum):
    """A trainer's loss over the tokens of a batch. With the advantages made for it, a rollout of
    several rows has the weight of the same tokens in one row."""

    ROWS = "the mean over rows of the mean over a row's tokens"
    """A row's mean forgets how many tokens it has: each row gets its share of the rollout's advantage."""
    TOKENS = "the sum or the mean over tokens, of a row or of the batch"
    """Each token counts by itself, in whichever row it stands: it gets the rollout's whole advantage."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A reply in a row: its place, its number in the rollout, its weights' version, and its own advantage.

    policy_version: of the oldest weights with a part in it; None if the inference server does not report it.
    advantage: added to the rollout's."""

    start: int
    length: int
    number: int
    policy_version: int | None = None
    advantage: float = 0.0


def token_advantages(
    masks: Sequence[int], value: float, share: float, turns: Iterable[Turn] = (), loss: Loss = Loss.ROWS
) -> list[float]:
    """Return the advantage of each token of a row; 0.0 if it is not trained.

    value: the rollout's. share: of the rollout's trained tokens, the part in the row."""
    weight = share if loss is Loss.ROWS else 1.0
    advantages = [0.0 if mask == IGNORED else value * weight for mask in masks]
    for turn in turns:
        for place in range(turn.start, turn.start + turn.length):
            if turn.advantage and masks[place] != IGNORED:
                advantages[place] += turn.advantage * weight
    return advantages


def teacher_advantages(masks: Sequence[int], logprobs: Sequence[float], taught: Sequence[float]) -> list[float]:
    """Return the advantage of each token of a row from a teacher; 0.0 if it is not trained.

    It is log(teacher) - log(policy) of the sampled token. Its mean over the policy's samples is the reverse KL with the
    other sign, so that a policy gradient with it brings the policy nearer to the teacher (arXiv 2306.08543).
    logprobs: as in the row. taught: the teacher's, of the sampled tokens, in order."""
    theirs = iter(taught)
    return [0.0 if mask == IGNORED else next(theirs) - own for mask, own in zip(masks, logprobs, strict=True)]


def token_versions(masks: Sequence[int], turns: Iterable[Turn], oldest: int | None) -> list[int | None]:
    """Return the policy version for each sampled token of a row; None if it was not sampled or is not known.

    oldest: of the row, for replies without a known one."""
    versions = [None if mask == IGNORED else oldest for mask in masks]
    for turn in turns:
        for place in range(turn.start, turn.start + turn.length):
            if turn.policy_version is not None and masks[place] != IGNORED:
                versions[place] = turn.policy_version
    return versions
