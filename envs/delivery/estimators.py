"""Turn the rewards of a group into advantages: the worth of each rollout beside the others."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atropos_agent.types import Branch

EQUAL = 1e-9
"""Rewards that differ by less, or by this part of the larger one, are equal: the same tests summed up in another order
differ by rounding, which a division by their deviation would make as large as any difference."""


@dataclass(frozen=True, slots=True)
class Estimator:
    """How advantages are made of rewards, the same for every group of a run.

    kind: `group-std` is (reward - mean) / standard deviation of the group (GRPO, arXiv 2402.03300); `group-mean` is
        reward - mean (Dr. GRPO, arXiv 2503.20783); `leave-one-out` is reward - mean of the others (RLOO, arXiv
        2402.14740); `none` is 0.
    length_penalty: the alpha of arXiv 2502.04463, from 0 to 1: a reward above 0 counts as
        reward * (1 - alpha * sigmoid((length - mean) / std)), over the lengths of the group's rollouts of such rewards.
    summary_weight: the factor on the rollout's advantage in the tokens of its summaries.
    teacher_weight: the factor on a token's own advantage from a teacher (`teacher_advantages`).
    """

    kind: str = "group-std"
    length_penalty: float = 0.0
    summary_weight: float = 1.0
    teacher_weight: float = 0.0

    @classmethod
    def of(cls, options: Any) -> Estimator:
        """Return the estimator of a run's options (`AgentEnvConfig`)."""
        return cls(options.estimator, options.length_penalty, options.summary_weight, options.teacher_weight)

    @classmethod
    def from_journal(cls, run: Mapping[str, str]) -> Estimator:
        """Return the estimator from the conditions in a run's journal, by `is:` and the option's name; the
        default for a run begun by an earlier version."""
        defaults = {"estimator": '"group-std"', "length_penalty": "0.0", "summary_weight": "1.0"}
        defaults |= {"teacher_weight": "0.0"}
        return cls(*(json.loads(run.get(f"is:{name}", default)) for name, default in defaults.items()))

    def advantages(self, rewards: Sequence[float], lengths: Sequence[int] = ()) -> list[float]:
        """Return the advantage of each rollout of a group; 0.0 for all if rewards are equal.

        lengths: sampled tokens of each; optional if lengths cost nothing. Raises ValueError for an unknown kind."""
        if self.length_penalty and lengths:
            rewards = _penalize_length(rewards, lengths, self.length_penalty)
        if not rewards or self.kind == "none" or math.isclose(min(rewards), max(rewards), rel_tol=EQUAL, abs_tol=EQUAL):
            return [0.0] * len(rewards)
        mean, spread = statistics.fmean(rewards), statistics.pstdev(rewards)
        divisors = {"group-std": spread, "group-mean": 1.0, "leave-one-out": 1 - 1 / len(rewards)}
        if self.kind not in divisors:
            raise ValueError(f"there is no estimator {self.kind!r}; it is one of {', '.join(divisors)}")
        return [(reward - mean) / divisors[self.kind] for reward in rewards]

    def summary_adjustment(self, branch: str, advantage: float) -> float:
        """Return what a reply of this kind is worth beside the advantage of its rollout."""
        return (self.summary_weight - 1) * advantage if branch == Branch.SUMMARY else 0.0


USUAL = Estimator()
"""The default."""


def _penalize_length(rewards: Sequence[float], lengths: Sequence[int], alpha: float) -> list[float]:
    """Return the rewards, reduced for long rollouts."""
    chosen = [length for reward, length in zip(rewards, lengths, strict=True) if reward > 0]
    if not chosen:
        return list(rewards)
    mean, std = statistics.fmean(chosen), statistics.pstdev(chosen)
    return [
        reward * (1 - alpha * _sigmoid((length - mean) / std if std > 0 else 0.0)) if reward > 0 else reward
        for reward, length in zip(rewards, lengths, strict=True)
    ]


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))
