"""Tell passing failures from permanent ones, and end a run in which nothing but one permanent failure ever happens."""

from __future__ import annotations

import re
from collections.abc import Iterator

from atropos_agent.engines.errors import RETRIED, Refused
from atropos_agent.types import TokenMismatch
from envs.types import Failure, InfraError, Task
from sandboxes.base import DaemonError, SandboxError, StorageFull
from sandboxes.plurals import plural

FAILURES = 12
"""Failures in a row, all alike, after which there is no hope, if none has ever succeeded."""
SEVERAL = 3
"""Number of different tasks among them, or all tasks of a run with fewer."""

_PASSING = (OSError, MemoryError, DaemonError, StorageFull)
"""Passing failures: waiting helps. Connections and time limits are OSErrors."""
_PERMANENT = (
    *(Refused, TokenMismatch, SandboxError),
    *(ValueError, TypeError, LookupError, AttributeError, NameError, ImportError),
    # The first is what a backend says that can't do what is asked (`NotSupported`), however often.
    *(NotImplementedError, AssertionError, ArithmeticError),
)
"""Failures that come again with the same input: a refusal, or a mistake in a program."""
_VARYING = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{8,}\b|\d+", re.IGNORECASE)


class NothingWorks(RuntimeError):
    """Every rollout fails by the same permanent failure; the message names it."""


class FailureWatch:
    """Knows whether any rollout of a run has ever succeeded, and the failures of the others.

    tasks: how many the run has, at least. at_once: groups, at most: with fewer of them than SEVERAL no other tasks are
    tried. A mistake that is not a task's is then the program's."""

    def __init__(self, tasks: int = SEVERAL, at_once: int = SEVERAL) -> None:
        self._tasks = min(SEVERAL, max(1, tasks))
        self._at_once = min(self._tasks, max(1, at_once))
        self._lost = True
        self._alike: frozenset[str] = frozenset()
        self._of: set[str] = set()
        self._failures = 0

    def note_success(self) -> None:
        """Take in a success: later failures may pass."""
        self._lost = False

    def note_failure(self, task: Task, error: InfraError) -> None:
        """Take in a failure. Raises NothingWorks when there is no hope."""
        if not self._lost:
            return
        texts = _texts(task, error) if is_permanent(error) else frozenset()
        alike = self._alike & texts
        if not alike:
            self._failures = 0
            self._of.clear()
        self._alike = alike or texts
        self._failures += 1
        self._of.add(task.id)
        several = self._tasks if error.kind is Failure.TASK else self._at_once
        if texts and self._failures >= FAILURES and len(self._of) >= several:
            raise NothingWorks(
                f"none of the rollouts succeeds: {self._failures} in a row, of {plural(len(self._of), 'task')}, "
                f"failed alike, and that does not pass: {error}"
            ) from error


def is_permanent(error: InfraError) -> bool:
    """Tell whether the same rollout would fail again, however long one waits."""
    chain = list(_cause_chain(error))
    if any(isinstance(one, _PASSING) or getattr(one, "passing", False) for one in chain):
        return False
    if any(getattr(one, "permanent", False) for one in chain):  # as it was told where it happened
        return True
    return error.kind is Failure.TASK or any(isinstance(one, _PERMANENT) or _is_refusal(one) for one in chain)


def _is_refusal(error: BaseException) -> bool:
    """Tell whether an HTTP client's error means a refusal of our request; openai's have a `status_code`."""
    status = getattr(error, "status_code", None)
    return isinstance(status, int) and 400 <= status < 500 and status not in RETRIED


def _cause_chain(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    seen: set[int] = set()
    while found is not None and id(found) not in seen:  # one may be its own cause
        yield found
        seen.add(id(found))
        found = found.__cause__


def _texts(task: Task, error: InfraError) -> frozenset[str]:
    """Return a failure's text without the parts that differ from time to time, and also without those that differ from
    task to task: an id such as "a" may stand in any text."""
    whole = bare = str(error)
    for own in (task.id, task.image):
        bare = bare.replace(own, "…") if own else bare
    return frozenset(f"{error.kind} {_VARYING.sub('…', text)}" for text in (whole, bare))
