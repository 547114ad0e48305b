"""Reward other than all or nothing: `--env.reward package.module:NAME` names a function, or a `Shaping` of yours."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from envs.types import MOST_REWARD, TESTS_UNSEEN, Failure, InfraError, Outcome, Reward, Task, TestStatus
from sandboxes.naming import resolve
from sandboxes.signatures import signature_of

RewardFunction = Callable[[Task, Outcome], float | Reward]


def find_reward(option: str, path: str) -> RewardFunction:
    """Return the function that an option names, as package.module:NAME or by an entry point.

    Raises ValueError if there is none, or if it can't be called with (task, outcome) for a number."""
    found: RewardFunction = resolve(option, path, {}, "atropos_agent.rewards")
    if isinstance(found, type) or not callable(found):
        raise ValueError(f"{option} {path}: no function; name one of (task, outcome), or a Shaping of yours")
    if inspect.iscoroutinefunction(found) or inspect.iscoroutinefunction(type(found).__call__):
        raise ValueError(
            f"{option} {path}: it is async, and a reward is computed without waiting; write it with `def`. A model is "
            "asked in a function with @rollout, or as a judge (docs/judges.md)"
        )
    try:
        signature_of(found).bind(None, None)
    except TypeError as error:
        raise ValueError(f"{option} {path}: it is called with (task, outcome): {error}") from error
    return found


def reward_of(value: float | Reward, turns: int) -> Reward:
    """Return the reward of a reward function's value, in plain finite numbers. turns: of the rollout.

    Raises InfraError for another value; it would come again."""
    given = value if isinstance(value, Reward) else Reward(value)
    own = tuple(_number("a turn's advantage", one) for one in given.turn_advantages)
    if own and len(own) != turns:
        what = f"the reward has {len(own)} turn advantages for {turns} turns; give each turn one, or leave them out"
        raise InfraError(Failure.VERIFIER, what, permanent=True)
    value = _number("the reward", given.value)
    return replace(given, value=value, turn_advantages=own, explanation=str(given.explanation))


def number_of(value: Any) -> float:
    """Return a number as a float. Raises TypeError for a text, whatever is in it; TypeError, ValueError or
    OverflowError for another value."""
    if isinstance(value, str | bytes | bytearray):
        raise TypeError("a text is no number")
    return float(value)


def _number(what: str, value: Any) -> float:
    try:
        number = number_of(value)
    except (TypeError, ValueError, OverflowError) as error:
        problem = f"{what} is a {type(value).__name__}; return a number or a Reward"
        raise InfraError(Failure.VERIFIER, problem) from error
    if not abs(number) <= MOST_REWARD:
        problem = (
            f"{what} is {number}; a reward function (--env.reward, or `reward` of the environment) returns finite ones "
            f"of at most {MOST_REWARD:g}"
        )
        raise InfraError(Failure.VERIFIER, problem, permanent=True)
    return number


@dataclass(frozen=True)
class Shaping:
    """Reward a rollout by its verdict, its calls and its length. The defaults change nothing.

    tests: "all" takes the verifier's reward; "fraction" takes the share of passed tests, if any were seen.
    malformed_call: taken from the reward for each malformed call, at most `malformed_most` in all.
    long_reply: taken from the reward for every 1,000 sampled tokens beyond `free_tokens`.
    turn_malformed: taken from the advantage of a reply with malformed calls.
    turn_error: taken from the advantage of a reply, if a tool refuses one of its calls.
    """

    tests: Literal["all", "fraction"] = "all"
    malformed_call: float = 0.0
    malformed_most: float = 0.5
    long_reply: float = 0.0
    free_tokens: int = 4096
    turn_malformed: float = 0.0
    turn_error: float = 0.0

    def __call__(self, _task: Task, outcome: Outcome) -> Reward:
        """Return the reward of a judged rollout, with an advantage for each turn."""
        verdict, result = outcome.verdict, outcome.result
        reward, why = verdict.reward, []
        seen = verdict.tests and not verdict.metrics.get(TESTS_UNSEEN)
        if self.tests == "fraction" and seen and not verdict.solved:
            passed = sum(status is TestStatus.PASSED for status in verdict.tests.values())
            # Everything passed and yet it isn't solved: the verifier has its reasons.
            reward = passed / len(verdict.tests) if passed < len(verdict.tests) else 0.0
            why.append(f"{passed} of {len(verdict.tests)} tests are worth {reward:g}")
        malformed = result.counts.malformed_calls
        if taken := min(self.malformed_call * malformed, self.malformed_most):
            reward -= taken
            why.append(f"{malformed} malformed calls cost {taken:g}")
        beyond = max(0, result.sampled_tokens - self.free_tokens)
        if taken := self.long_reply * beyond / 1000:
            reward -= taken
            why.append(f"{beyond} tokens beyond {self.free_tokens} cost {taken:g}")
        turns = tuple(
            -self.turn_malformed * (step.correction is not None)
            - self.turn_error * any(item.is_error for item in step.results)
            for step in result.steps
        )
        return Reward(reward, turns if any(turns) else (), "; ".join(why))


fraction = Shaping(tests="fraction")
"""The share of passed tests."""
