"""The messages between the driver and a worker process, and their transport.

Everything is one of these few dataclasses, pickled by the transport. Both sides are ours and trust each other;
a sandbox's data is only ever text or bytes in them.
"""

from __future__ import annotations

import pickle
import traceback
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from atropos_agent.types import AgentResult
from envs.config import AgentEnvConfig
from envs.running.permanent import is_permanent
from envs.types import Failure, InfraError, Rollout, Seat, Task

PIECE = 60_000
"""Bytes of one piece of a rollout. A call's answer of less than 100 kB goes straight to the driver; Ray would put a
larger one into its object store."""
KEPT_MESSAGES = 6
"""Messages of a failed rollout's conversation, sent with the failure."""


@dataclass(frozen=True, slots=True)
class StartMessage:
    """The start message to a worker process.

    env_cls: the environment's class. engines: configurations of the inference servers. tokenizer: its folder, packed
    (`folders.py`). name: of the run. first: the inference server that it asks first, of equally busy ones.
    log_level: of its log records for the driver.
    """

    env_cls: Any
    config: AgentEnvConfig
    engines: Sequence[Any] = field(repr=False)
    tokenizer: bytes = field(repr=False)
    version: str
    name: str
    first: int
    log_level: int


@dataclass(frozen=True, slots=True)
class RolloutOrder:
    """An order for a rollout. number: its name in later messages. turns: the journalled ones; None if none are
    kept. folders: those that the task names and the worker lacks, packed, by digest."""

    number: int
    task: Task
    seat: Seat
    turns: Sequence[bytes] | None
    folders: Mapping[str, bytes] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that a conversation has taken in, for the journal."""

    number: int
    body: bytes


@dataclass(frozen=True, slots=True)
class RolloutPiece:
    """A piece of a judged rollout; `last` completes it."""

    number: int
    piece: bytes
    last: bool


@dataclass(frozen=True, slots=True)
class RolloutFailure:
    """An infrastructure failure. progress: of the recording, see `TurnRecording.progress`; None without a recording."""

    number: int
    failure: RemoteFailure
    progress: tuple[int, int, bool] | None


@dataclass(frozen=True, slots=True)
class WorkerLogRecord:
    """A record of the worker's log."""

    logger: str
    level: int
    text: str


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """Tokens that the inference servers have sampled for this worker since its last report, in the servers' order."""

    tokens: Sequence[int]


News = Turn | RolloutPiece | RolloutFailure | WorkerLogRecord | SampledTokens


class RemoteError(Exception):
    """Stands in the driver for the exception of a rollout in a worker. Its text is the traceback there.

    permanent: whether it would come again. partial: the agent's work until then, without its tokens."""

    def __init__(self, text: str, *, permanent: bool, partial: AgentResult | None) -> None:
        super().__init__(text)
        self.permanent = permanent
        self.partial = partial


@dataclass(frozen=True, slots=True)
class RemoteFailure:
    """An InfraError on its way to the driver."""

    kind: Failure
    message: str
    unexpected: bool
    permanent: bool
    text: str
    partial: AgentResult | None = None

    @classmethod
    def of(cls, error: InfraError) -> RemoteFailure:
        """Make one of a failure."""
        partial = getattr(error.__cause__, "partial", None)
        if partial is not None:
            last = partial.messages[-KEPT_MESSAGES:]
            partial = replace(partial, steps=(), segments=(), record=(), metadata={}, messages=last)
        text = "".join(traceback.format_exception(error))
        return cls(error.kind, error.message, error.unexpected, is_permanent(error), text, partial)

    def error(self, where: str) -> InfraError:
        """Return the failure as the driver raises it. where: it happened."""
        found = InfraError(self.kind, f"{self.message} (on {where})", unexpected=self.unexpected)
        found.__cause__ = RemoteError(self.text, permanent=self.permanent, partial=self.partial)
        return found


def split_rollout(number: int, rollout: Rollout) -> list[RolloutPiece]:
    """Return a judged rollout in pieces, without its task and its seat: the driver has these."""
    body = zlib.compress(pickle.dumps(replace(rollout, task=None, seat=Seat()), pickle.HIGHEST_PROTOCOL), 1)  # type: ignore[arg-type]
    starts = range(0, len(body), PIECE)
    return [RolloutPiece(number, body[start : start + PIECE], start + PIECE >= len(body)) for start in starts]


def join_rollout(parts: Sequence[bytes], task: Task, seat: Seat) -> Rollout:
    """Return the judged rollout from its pieces."""
    rollout: Rollout = pickle.loads(zlib.decompress(b"".join(parts)))
    return replace(rollout, task=task, seat=seat)


class WorkerGoneError(Exception):
    """The worker process, or its machine, is no more."""


class WorkerUnreachableError(Exception):
    """It can't be reached now; whether our last message has arrived isn't known."""


class Link(Protocol):
    """The way to one worker process."""

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of `WorkerProcess`. Raises WorkerGoneError and WorkerUnreachableError."""
        ...

    async def kill(self) -> None:
        """End the process at once, if it lives."""
        ...


class Cluster(Protocol):
    """The machines for worker processes. Used as `async with`."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, *exc: object) -> None: ...

    async def nodes(self) -> Sequence[str]:
        """Return the names of the usable machines."""
        ...

    async def start(self, node: str) -> Link:
        """Start a worker process there. It waits while there is no room. Raises WorkerGoneError."""
        ...
