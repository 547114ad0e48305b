"""Send a run's spans to an OTLP receiver over HTTP, in the background: no rollout waits for it or fails with it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from importlib.util import find_spec
from typing import Any

from opentelemetry.trace import Span

from atropos_agent import tracing
from atropos_agent.tracing import SCOPE, Telemetry, trace_environment, use_telemetry
from envs.types import Seat, Task
from sandboxes.base import ExecResult, Sandbox, Session
from sandboxes.installing import install
from sandboxes.naming import lazy_import
from sandboxes.wrapped import WrappedSandbox

logger = logging.getLogger(__name__)

CLOSING_S = 10.0
"""How long the last spans may take to be sent when a run ends, in seconds."""
_OPEN_PROVIDER = lazy_import("envs.running.otlp:open_provider")


def check_telemetry(url: str) -> None:
    """Raise ValueError, with the remedy, if spans are wanted and their sender is not installed."""
    try:
        there = all(find_spec(name) for name in ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"))
    except ModuleNotFoundError:  # of a package in which it would be
        there = False
    if url and not there:
        raise ValueError(f"--env.otlp_url needs OpenTelemetry's SDK: {install('telemetry')}")


@asynccontextmanager
async def open_telemetry(url: str, about: Mapping[str, str], *, content: bool) -> AsyncIterator[None]:
    """Send the spans of this block, and of tasks begun in it, to the receiver at `url`; nowhere when it is "".

    about: the source of the spans, as a resource's attributes. content: whether they hold the messages. Headers,
    such as a key, are those of the variable OTEL_EXPORTER_OTLP_HEADERS.
    """
    if not url:
        yield
        return
    provider = _OPEN_PROVIDER()(url, about)
    try:
        with use_telemetry(Telemetry(provider.get_tracer(SCOPE), content)):
            yield
    finally:
        # In a thread that nobody has to wait for: a receiver may take the request and never answer.
        closing = threading.Thread(target=provider.shutdown, name="telemetry", daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, CLOSING_S)
        if closing.is_alive():
            logger.warning("the last spans could not be sent to %s within %.0f s", url, CLOSING_S)


def rollout_span(task: Task, seat: Seat, agent: str) -> AbstractContextManager[Span]:
    """Record one attempt at a rollout: the span around all others of it."""
    attributes = {
        tracing.OPERATION: "invoke_agent",
        tracing.AGENT: agent,
        tracing.PROVIDER: "atropos",
        tracing.TASK: task.id,
        tracing.GROUP: seat.group,
        tracing.MEMBER: seat.member,
        tracing.STEP: seat.step,
        tracing.EVALUATING: seat.evaluating,
    }
    return tracing.span(f"invoke_agent {agent}", attributes)


class TracedSandbox(WrappedSandbox):
    """A sandbox that tells its commands their trace, by the variable TRACEPARENT."""

    async def exec(self, command: str | Sequence[str], **options: Any) -> ExecResult:
        env = {**trace_environment(), **(options.pop("env", None) or {})}
        return await self.inner.exec(command, env=env, **options)

    async def session(
        self, *, cwd: str | None = None, env: Mapping[str, str] | None = None, user: str | None = None
    ) -> Session:
        return await self.inner.session(cwd=cwd, env={**trace_environment(), **(env or {})}, user=user)


def trace_sandbox(sandbox: Sandbox) -> Sandbox:
    """Return a sandbox that knows the current trace, if there is one."""
    return TracedSandbox(sandbox) if trace_environment() else sandbox
