"""Rewards other than all or nothing, for those who ask for them. Evaluations are never shaped."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from atropos_agent.types import AgentResult
from envs.types import TESTS_UNSEEN, Reward, TestStatus, Verdict


class Shaping(BaseModel):
    """How a judged rollout's reward is shaped. The defaults change nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tests: Literal["all", "fraction"] = Field(
        default="all",
        description="all: the verifier's reward; fraction: the share of tests that were seen to pass, if any were seen",
    )
    malformed_call: float = Field(default=0.0, ge=0, description="Taken from the reward for each malformed call")
    malformed_most: float = Field(default=0.5, ge=0, description="Most that malformed calls take from the reward")
    long_reply: float = Field(
        default=0.0, ge=0, description="Taken from the reward for every 1,000 sampled tokens beyond `free_tokens`"
    )
    free_tokens: int = Field(default=4096, ge=0, description="Sampled tokens of a rollout that cost nothing")
    turn_malformed: float = Field(
        default=0.0, ge=0, description="Taken from the advantage of a reply's own tokens when its calls are malformed"
    )
    turn_error: float = Field(
        default=0.0, ge=0, description="Taken from the advantage of a reply's own tokens when a tool refuses its call"
    )


def shaped(verdict: Verdict, result: AgentResult, shaping: Shaping) -> Reward:
    """Return the reward of a rollout as `shaping` wants it."""
    reward, why = verdict.reward, []
    seen = verdict.tests and not verdict.metrics.get(TESTS_UNSEEN)
    if shaping.tests == "fraction" and seen and not verdict.solved:
        passed = sum(status is TestStatus.PASSED for status in verdict.tests.values())
        # Everything passed and yet it isn't solved: the verifier has its reasons.
        reward = passed / len(verdict.tests) if passed < len(verdict.tests) else 0.0
        why.append(f"{passed} of {len(verdict.tests)} tests are worth {reward:g}")
    malformed = result.counts.malformed_calls
    if taken := min(shaping.malformed_call * malformed, shaping.malformed_most):
        reward -= taken
        why.append(f"{malformed} malformed calls cost {taken:g}")
    beyond = max(0, result.sampled_tokens - shaping.free_tokens)
    if taken := shaping.long_reply * beyond / 1000:
        reward -= taken
        why.append(f"{beyond} tokens beyond {shaping.free_tokens} cost {taken:g}")
    turns = tuple(
        -shaping.turn_malformed * (step.correction is not None)
        - shaping.turn_error * any(item.is_error for item in step.results)
        for step in result.steps
    )
    return Reward(reward, turns if any(turns) else (), "; ".join(why))
