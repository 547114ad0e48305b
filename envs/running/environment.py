"""A run's needs of an environment and of its inference servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, ClassVar, Protocol

from atropos_agent.engines.load import Load
from atropos_agent.tokens.template import ChatTemplate
from envs.config import AgentEnvConfig
from envs.records.redaction import Redactor
from envs.records.stats import EvalSummary
from envs.records.tracking import Trackers
from envs.resources import Resource
from envs.running.stopping import StopRequest
from envs.running.worker import Attempts
from envs.types import Task


class InferenceServer(Protocol):
    """A run's needs of an inference server; see `atropos_agent.engines`."""

    config: Any
    sampled: int
    """Tokens that it has ever sampled for us, or replies if it gives no tokens."""

    async def connect(self) -> None:
        """Ask it for its models; if none is named in `config`, its only one is noted there. Raises EngineError."""
        ...

    async def load(self) -> Load | None:
        """Return how busy it is; None when it does not say."""
        ...

    async def alive(self) -> bool:
        """Tell whether anything answers at its address."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class Environment(Attempts, Protocol):
    """A run's needs of an environment; see `AgentEnv`, which has them.

    template: the model's chat template; None without token ids. redactor: keeps secrets out of written text.
    carries_tokens: whether the inference servers give token ids.
    trackers: the destinations of logged figures.
    """

    name: ClassVar[str]
    tokenizer: Any
    template: ChatTemplate | None
    run_dir: Path
    redactor: Redactor
    stopping: StopRequest
    trackers: Trackers

    @property
    def config(self) -> AgentEnvConfig:
        """Return the options."""
        ...

    @property
    def carries_tokens(self) -> bool:
        """Tell whether rollouts have token ids."""
        ...

    @property
    def servers(self) -> Sequence[InferenceServer]:
        """Return the inference servers."""
        ...

    async def ready_tasks(self) -> tuple[Sequence[Task], Sequence[Task]]:
        """Load the tasks to train on and those to evaluate on."""
        ...

    def resources(self) -> Mapping[str, Resource | None]:
        """Return the texts that may get new versions, by name; None for one without a text."""
        ...

    async def setup(self, resources: AsyncExitStack) -> None:
        """Open the resources of rollouts."""
        ...

    async def log_step(self, step: int, values: Mapping[str, float]) -> None:
        """Log figures of a trainer's step to the trackers."""
        ...

    async def log_evaluation(self, summary: EvalSummary, started: float) -> None:
        """Log an evaluation to the trackers, and write it to atroposlib's place for evaluations, if wanted.
        started: Unix time."""
        ...
