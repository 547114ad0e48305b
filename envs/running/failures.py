"""Infrastructure failures: told apart by their causes, counted, and kept as evidence of quarantined tasks."""

from __future__ import annotations

import logging
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from atropos_agent.types import AgentError, EngineError, TokenMismatch, Unanswered
from envs.records.disk import append_line, retry_until_space
from envs.records.metrics import Metrics
from envs.records.plain import plain
from envs.records.redaction import Redactor
from envs.running.concurrency import CircuitBreaker
from envs.running.permanent import SEVERAL, FailureWatch
from envs.types import Failure, InfraError, Task
from sandboxes.base import ImageUnbuildable, SandboxError
from tools.mcp.servers import MCPServerError

logger = logging.getLogger(__name__)

KEPT = 4
"""Failures of a task in its evidence, the last ones."""

SHOWN = 200
"""Characters of the last failure in the progress bar and on the page."""

KEPT_MESSAGES = 6
"""The last messages of a conversation in the evidence."""


_ORIGINS = ((EngineError, Failure.ENGINE), (Unanswered, Failure.ENVIRONMENT), (TokenMismatch, Failure.TOKENS))


def attribute(error: BaseException) -> InfraError:
    """Return the infrastructure failure for an exception, by its cause; `unexpected` if the cause is unknown."""
    if isinstance(error, InfraError):
        return error
    for kind, failure in _ORIGINS:
        if isinstance(error, kind):
            return InfraError(failure, str(error))
    cause = error.__cause__ if isinstance(error, AgentError) and error.__cause__ is not None else error
    if isinstance(cause, ImageUnbuildable):
        return InfraError(Failure.TASK, str(cause))
    if isinstance(cause, MCPServerError):
        return InfraError(Failure.TASK if cause.of_task and cause.hopeless else Failure.SANDBOX, str(cause))
    if isinstance(cause, SandboxError):
        return InfraError(Failure.SANDBOX, f"{type(cause).__name__}: {cause}")
    return InfraError(Failure.ENVIRONMENT, f"{type(cause).__name__}: {cause}", unexpected=True)


@contextmanager
def attribute_errors(*others: type[Exception]) -> Iterator[None]:
    """Raise the infrastructure failure for an exception of the block. others: exceptions that go on as they are."""
    as_they_are: tuple[type[Exception], ...] = (InfraError, *others)
    try:
        yield
    except as_they_are:
        raise
    except Exception as error:  # whatever it is, no rollout may count as judged by it
        raise attribute(error) from error


class FailureLog:
    """The infrastructure failures of a run.

    path: the file for the evidence of quarantined tasks, JSONL. tasks, at_once: see `FailureWatch`."""

    def __init__(
        self,
        path: Path,
        metrics: Metrics,
        breaker: CircuitBreaker,
        redactor: Redactor,
        tasks: int = SEVERAL,
        at_once: int = SEVERAL,
    ) -> None:
        self.path = path
        self.breaker = breaker
        self.failure_watch = FailureWatch(tasks, at_once)
        if metrics.rollouts:  # of an earlier start: what fails now may pass
            self.failure_watch.note_success()
        self._metrics = metrics
        self._redactor = redactor
        self._last: dict[str, deque[dict[str, Any]]] = {}
        self._impossible: dict[str, str] = {}
        self._shown: set[tuple[str, ...]] = set()
        """Places of unexpected failures whose stack is in the log."""

    def note(self, task: Task, error: InfraError, *, step: int) -> None:
        """Count a failure, and keep its evidence until its task is quarantined or judged. step: the trainer's.

        Raises NothingWorks when there is no hope for any rollout of the run."""
        if error.unexpected:
            place = _place(error)
            # The stack once: where hundreds fail alike, the others are a line each.
            logger.error("an unexpected failure in a rollout", exc_info=error if place not in self._shown else None)
            self._shown.add(place)
        partial = getattr(error.__cause__, "partial", None)
        refused = partial.counts.refused_tokens if partial else 0
        self._metrics.count_failure(error.kind, step=step, refused_tokens=refused)
        if error.kind is Failure.TASK:
            self._impossible[task.id] = error.message
        else:
            self.breaker.last = self._redactor.text(str(error))[:SHOWN]
            self.breaker.note(error)
        self._last.setdefault(task.id, deque(maxlen=KEPT)).append(_evidence(error))
        self.failure_watch.note_failure(task, error)

    def impossible_reason(self, task: Task) -> str | None:
        """Return why a task can't be made as it is, however often it is tried; None if nothing says so."""
        return self._impossible.get(task.id)

    def forget(self, task: Task) -> None:
        """Drop the evidence of a task."""
        self._last.pop(task.id, None)
        self._impossible.pop(task.id, None)

    async def write(self, task: Task) -> None:
        """Append a task's evidence to the file, waiting while the disk is full."""
        record = plain({"task": task.id, "failures": list(self._last.get(task.id, ()))})
        line = orjson.dumps(self._redactor.value(record))
        await retry_until_space(self.path, lambda: append_line(self.path, line), home=self.path.parent)


def _place(error: InfraError) -> tuple[str, ...]:
    """Return where an unexpected failure comes from: the type and the lines of its cause."""
    cause = error.__cause__ or error
    return type(cause).__name__, *(f"{one.filename}:{one.lineno}" for one in traceback.extract_tb(cause.__traceback__))


def _evidence(error: InfraError) -> dict[str, Any]:
    """Return a failure's message, its traceback, and the end of the conversation."""
    partial = getattr(error.__cause__, "partial", None)
    return {
        "kind": error.kind,
        "message": str(error),
        "traceback": "".join(traceback.format_exception(error)),
        "messages": [dict(message) for message in partial.messages[-KEPT_MESSAGES:]] if partial else [],
    }
