"""Who failed: the errors that reach the edge of a rollout, told apart, and the evidence of those tasks
that fail again and again."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from atropos_agent.types import AgentError, EngineError, TokenMismatch
from envs.records.plain import plain_text
from envs.records.redaction import Redactor
from envs.types import InfraError, Task
from sandboxes.base import SandboxError

KEPT_MESSAGES = 6
"""The last messages of a conversation that evidence shows."""


def attribute(error: Exception) -> InfraError:
    """A failure of ours, by who failed; `unexpected` where nothing tells."""
    if isinstance(error, InfraError):
        return error
    if isinstance(error, EngineError):
        return InfraError("engine", str(error))
    if isinstance(error, TokenMismatch):
        return InfraError("tokens", str(error))
    cause = error.__cause__ if isinstance(error, AgentError) and error.__cause__ is not None else error
    if isinstance(cause, SandboxError):
        return InfraError("sandbox", f"{type(cause).__name__}: {cause}")
    return InfraError("environment", f"{type(cause).__name__}: {cause}", unexpected=True)


def evidence(error: InfraError) -> dict[str, Any]:
    """What is kept of a failure: its message, its traceback, the end of the conversation."""
    partial = getattr(error.__cause__, "partial", None)
    return {
        "kind": error.kind,
        "message": str(error),
        "traceback": "".join(traceback.format_exception(error)),
        "messages": [dict(message) for message in partial.messages[-KEPT_MESSAGES:]] if partial else [],
    }


def write_evidence(path: Path, task: Task, failures: Sequence[dict[str, Any]], redactor: Redactor) -> None:
    """Append a task that was set aside, with its failures, to a JSONL file."""
    line = orjson.dumps({"task": plain_text(task.id), "failures": failures}, default=str).decode()
    with path.open("ab") as file:
        file.write(redactor.text(line).encode() + b"\n")
