"""A worker makes one rollout: a task and a seat go in, a judged rollout or an InfraError comes out.

Nothing else crosses this border, so workers may run in other processes or on other machines
(`envs.running.remote`). This one runs the environment's `attempt` in its own process.
"""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from dataclasses import replace
from typing import Any, Protocol

from atropos_agent import tracing
from atropos_agent.types import AgentResult, Branch, StopReason
from envs.config import AgentEnvConfig
from envs.resources import versions_of
from envs.rewards import reward_of
from envs.running.failures import attribute
from envs.running.telemetry import rollout_span
from envs.running.watchdog import LoopWatch
from envs.types import (
    RESOURCES,
    VERIFIER_TIMED_OUT,
    Failure,
    InfraError,
    Outcome,
    Reward,
    Rollout,
    Seat,
    Task,
    Verdict,
    check_numbers,
)

_NO_WORK = frozenset({Branch.SIDE, Branch.UNTAKEN})
"""Kinds of replies that say nothing of the model's work: a title, a reply that never arrived."""
_NO_ROOM = (
    "the prompt left no room for a reply; raise --env.max_token_length, or the model's smaller context window, or "
    "lower --env.max_reply_tokens if an endpoint for messages has no room for so many"
)


class Worker(Protocol):
    """Makes rollouts, several at the same time."""

    async def run(self, task: Task, seat: Seat) -> Rollout:
        """Make one rollout, in one attempt. Raises InfraError for every failure of ours."""
        ...

    def expect(self, task: Task) -> None:
        """Begin the slow preparations for a task: it is drawn next."""
        ...


class Attempts(Protocol):
    """A worker's needs of an environment; see `AgentEnv`."""

    async def attempt(self, task: Task, seat: Seat) -> Outcome:
        """Let an agent work on the task and judge its work."""
        ...

    def reward(self, task: Task, outcome: Outcome) -> float | Reward:
        """Return the worth of the outcome in training."""
        ...

    def expect(self, task: Task) -> None:
        """Begin the slow preparations for a task: it is drawn next."""
        ...


def _check_types(outcome: Any) -> None:
    """Raise TypeError for what is no outcome, or can't be saved."""
    if not isinstance(outcome, Outcome):
        raise TypeError(f"`attempt` returned a {type(outcome).__name__}; return an Outcome")
    for name, kind in (("result", AgentResult), ("verdict", Verdict)):
        if not isinstance(value := getattr(outcome, name), kind):
            raise TypeError(f"Outcome.{name} is a {type(value).__name__}; give the {kind.__name__}")
    check_numbers("Outcome.timings_s", outcome.timings_s)


class LocalWorker:
    """Runs an environment's attempts in this process.

    watch: knows for how long the process stood still.
    """

    def __init__(self, env: Attempts, config: AgentEnvConfig, watch: LoopWatch) -> None:
        self._env = env
        self._config = config
        self._watch = watch

    async def run(self, task: Task, seat: Seat) -> Rollout:
        """See `Worker`."""
        with rollout_span(task, seat, seat.agent or self._config.agent) as span:
            rollout = await self._run(task, seat)
            reward, verdict = rollout.reward.value, rollout.verdict.reward
            tracing.record_rollout(span, rollout.result, rollout=rollout.id, reward=reward, verdict=verdict)
        return rollout

    def expect(self, task: Task) -> None:
        """See `Worker`."""
        self._env.expect(task)

    async def _run(self, task: Task, seat: Seat) -> Rollout:
        started, runner = time.monotonic(), asyncio.current_task()
        own = replace(seat, ledgers=[])  # the rollout does not hold them
        seconds = self._config.rollout_timeout_s + task.hidden.timeout_s + self._config.overtime_s
        try:
            async with asyncio.timeout(seconds) as limit:
                outcome = await self._env.attempt(task, own)
            _check_types(outcome)
            reward = self._reward(task, outcome, seat)
            self._check(outcome, reward, own, started)
        except InfraError:
            raise
        except asyncio.CancelledError:
            if runner is None or runner.cancelling():
                raise
            raise InfraError(Failure.ENVIRONMENT, "a rollout was cancelled from within") from None
        except (Exception, SystemExit) as error:  # an environment raises anything: no rollout may count as judged by it
            if limit.expired():
                what = f"the rollout hung: it was not over after {seconds:.0f} s"
                raise InfraError(Failure.ENVIRONMENT, what) from error
            raise attribute(error) from error
        result = outcome.result
        if seat.resources:
            result = replace(result, metadata={**result.metadata, RESOURCES: versions_of(seat.resources)})
        timings = {**outcome.timings_s, "total": time.monotonic() - started}
        name = uuid.uuid4().hex
        return Rollout(name, task, result, outcome.verdict, reward, seat, timings, outcome.work)

    def _reward(self, task: Task, outcome: Outcome, seat: Seat) -> Reward:
        if seat.evaluating:
            return Reward(outcome.verdict.reward)
        return reward_of(self._env.reward(task, outcome), len(outcome.result.steps))

    def _check(self, outcome: Outcome, reward: Reward, seat: Seat, started: float) -> None:
        """Raise InfraError for an outcome that would be no valid measurement, or no row."""
        result = outcome.result
        if not math.isfinite(outcome.verdict.reward):
            what = f"the verifier's reward is {outcome.verdict.reward}"
            raise InfraError(Failure.VERIFIER, what, permanent=True)
        worked = any(step.branch not in _NO_WORK for step in result.steps)
        if not worked and result.stop_reason is StopReason.MAX_TOKENS:
            raise InfraError(Failure.TASK, _NO_ROOM)
        if not worked:
            ended = f"the agent ended as {result.stop_reason or 'nobody knows what'}"
            why = result.error or f"{ended}; an agent or a function asks the model at least once"
            # One that ends without a question, and says of no trouble, would do it again.
            quiet = result.error is None and result.stop_reason in (StopReason.ANSWERED, None)
            raise InfraError(Failure.ENVIRONMENT, f"no reply was sampled: {why}", permanent=quiet)
        missing = sum(ledger.replies for ledger in seat.ledgers) - len(result.steps)
        if missing > 0:
            what = f"{missing} replies that agents of this rollout sampled are not in its result"
            remedy = "return the result of an agent's last run, and join those of several agents"
            raise InfraError(Failure.ENVIRONMENT, f"{what}; {remedy}", permanent=True)
        longest = max((len(segment.tokens) for segment in result.segments), default=0)
        most = self._config.max_token_length if seat.max_tokens is None else seat.max_tokens
        if longest > most:
            what = f"a row of {longest} tokens is longer than {most}"
            raise InfraError(Failure.TOKENS, what, permanent=True)
        late = result.stop_reason is StopReason.TIME or VERIFIER_TIMED_OUT in outcome.verdict.metrics
        if late and (lost := self._watch.suspended_since(started)) > 0:
            what = f"the process was suspended for {lost:.0f} s of the rollout's time"
            raise InfraError(Failure.SUSPENDED, what)
