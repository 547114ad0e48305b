"""The nouns of an environment: the task, what judges it, and the verdict."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atropos_agent.types import AgentResult
from sandboxes.base import Limits


class BadTask(ValueError):
    """A task that can't be read or run; the message names the task, the field and the remedy."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """What the model must never see.

    tests: directory copied to /tests in the judge's sandbox; holds `test.sh`. None in an environment
        that judges by other means.
    solution: directory with `solve.sh`, copied to /solution by the reference run; None when
        the task has none.
    user: who runs `test.sh`; None for root, with the judged code as the image's own user, or nobody where
        that is root. Any other user can write the reward, and so can the code that it runs.
    network, allowed_hosts: what the judge's sandbox can reach (see `Limits`); None as in the task's own limits.
    territory: patterns (`tests/*`, matched to paths and to names) of what decides about the work, beside
        `envs.judging.changes.TERRITORY`: the agent's changes there are not carried over.
    """

    tests: Path | None = None
    solution: Path | None = None
    test_env: Mapping[str, str] = field(default_factory=dict)
    solution_env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 600.0
    user: str | None = None
    network: bool | None = None
    allowed_hosts: tuple[str, ...] = ()
    territory: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """One problem: what the model is told, where it works, and, apart, what judges it.

    image: an image to use as it is; context: a directory with a Dockerfile to build otherwise.
    workdir: the source tree that the agent changes and that is judged; None takes the image's.
    timeout_s: wall time for the agent; None for the environment's own limit.
    digest: sha256 of everything that defines the task; "" when its adapter makes none.
    """

    id: str
    instruction: str
    hidden: Hidden = Hidden()
    image: str | None = None
    context: Path | None = None
    workdir: str | None = None
    user: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = Limits()
    timeout_s: float | None = None
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""


class TestStatus(enum.StrEnum):
    __test__ = False  # not a test class for pytest

    PASSED = "passed"
    FAILED = "failed"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge found.

    reward: finite; 1.0 is solved.
    tests: status per test where the task reports tests.
    explanation: why, in a sentence or two, with the end of the judge's output.
    turn_advantages: one a reply, finite, added to the advantage that comes from the rewards; none
        where turns aren't told apart.
    """

    reward: float
    explanation: str
    tests: Mapping[str, TestStatus] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    turn_advantages: Sequence[float] = ()

    @property
    def solved(self) -> bool:
        """Whether the judge gave at least 1, however the reward was shaped afterwards."""
        return self.metrics.get("judged", self.reward) >= 1.0


@dataclass(frozen=True, slots=True)
class Rollout:
    """One agent's work on one task, judged."""

    id: str
    task: Task
    result: AgentResult
    verdict: Verdict
    timings_s: Mapping[str, float] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


class InfraError(RuntimeError):
    """A failure of ours in a rollout. Never a reward.

    kind: "engine", "sandbox", "judge", "tokens", "task" or "environment"; counted by it.
    unexpected: nothing tells whose fault it was; its traceback is logged.
    """

    def __init__(self, kind: str, message: str, *, unexpected: bool = False) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.unexpected = unexpected
