"""Judged rollouts: within the concurrency limit, retried after infrastructure failures, counted and saved."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_exponential

from atropos_agent.engines.teacher import Teacher
from atropos_agent.types import AgentError
from envs.records.atif import Place, RolloutWriter
from envs.records.metrics import Metrics
from envs.resources import Resource
from envs.running.concurrency import ConcurrencyLimiter
from envs.running.failures import FailureLog
from envs.running.replay import TurnRecording
from envs.running.worker import Worker
from envs.types import Failure, InfraError, Rollout, Seat, Task

logger = logging.getLogger(__name__)

REPEATABLE = (Failure.ENGINE, Failure.VERIFIER, Failure.SUSPENDED, Failure.WORKER, Failure.TEACHER)
"""Failures after which a rollout is begun again with its earlier replies: they did not cause it."""


class Rollouts:
    """Makes rollouts by a worker. attempts: how often each is tried. resources: of seats without their own.
    teacher: scores their rows."""

    def __init__(
        self,
        worker: Worker,
        limiter: ConcurrencyLimiter,
        failures: FailureLog,
        metrics: Metrics,
        writer: RolloutWriter,
        *,
        attempts: int,
        resources: Mapping[str, Resource] | None = None,
        teacher: Teacher | None = None,
    ) -> None:
        self.limiter = limiter
        self.failures = failures
        self.metrics = metrics
        self._worker = worker
        self._writer = writer
        self._attempts = attempts
        self._resources = resources or {}
        self._teacher = teacher

    async def make(self, task: Task, seat: Seat, recording: TurnRecording | None = None) -> tuple[Rollout, Place]:
        """Make a judged rollout, and save it. Returns it with its place in the file. Raises InfraError when every
        attempt had an infrastructure failure, NothingWorks when no rollout of the run ever succeeds.

        recording: keeps its turns; another attempt goes on from them."""
        if recording is not None:
            await recording.rewind()
        if seat.resources is None:
            seat = replace(seat, resources=self._resources)
        async for attempt in self._retrying():
            with attempt:
                rollout = await self._attempt(task, seat, recording, attempt.retry_state)
        self.failures.breaker.note(None)
        self.failures.failure_watch.note_success()
        self.metrics.count_rollout(rollout)
        return rollout, await self._writer.write(rollout)

    def expect(self, task: Task) -> None:
        """Begin the slow preparations for a task: it is drawn next."""
        self._worker.expect(task)

    def _retrying(self) -> AsyncRetrying:
        return AsyncRetrying(
            stop=stop_after_attempt(self._attempts),
            wait=wait_exponential(multiplier=1, max=8),
            retry=retry_if_exception(_may_succeed),
            reraise=True,
        )

    async def _attempt(self, task: Task, seat: Seat, recording: TurnRecording | None, state: RetryCallState) -> Rollout:
        try:
            async with self.limiter.slot():
                rollout = await self._worker.run(task, seat)
            return (
                rollout
                if self._teacher is None or seat.evaluating
                else await _add_teacher_scores(self._teacher, rollout)
            )
        except InfraError as error:
            logger.warning("task %s, attempt %d of %d: %s", task.id, state.attempt_number, self._attempts, error)
            self.failures.note(task, error, step=seat.step)
            if recording is not None:
                if recording.is_stuck or error.kind not in REPEATABLE:
                    await recording.forget()  # also after the last attempt: the group may be made later
                elif state.attempt_number < self._attempts:
                    await recording.rewind()
            raise


async def _add_teacher_scores(teacher: Teacher, rollout: Rollout) -> Rollout:
    """Return a rollout with a teacher's scores in its rows. Others run meanwhile in its place. Raises InfraError."""
    began = time.monotonic()
    try:
        result = await teacher.score(rollout.result)
    except AgentError as error:
        raise InfraError(Failure.TEACHER, str(error)) from error
    return replace(rollout, result=result, timings_s={**rollout.timings_s, "teacher": time.monotonic() - began})


def _may_succeed(error: BaseException) -> bool:
    """Tell whether another attempt may succeed: a task that can't be made as it is fails again."""
    return isinstance(error, InfraError) and error.kind is not Failure.TASK
