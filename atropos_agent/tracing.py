"""Report a rollout to OpenTelemetry: its spans, and the names used in them.

Without a tracer nothing is recorded: OpenTelemetry's API alone does nothing. A run sets one by `--env.otlp_url`
(`envs.running.telemetry`); a program of one's own with this package may set its global provider instead.

    invoke_agent            a rollout, from the sandbox to the verdict
      sandbox …             what is done with its sandbox
      turn                  a reply and its calls
        chat                one request to an inference server
        execute_tool        one call
      verifier

Names are those of OpenTelemetry's semantic conventions for generative AI, if they have one; ours begin with
`atropos.`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from atropos_agent.types import AgentConfig, AgentResult, Message
from sandboxes.shielding import on_failure
from tools.base import ToolCall, ToolResult

T = TypeVar("T")

SCOPE = "atropos_agent"

# Of the conventions
OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT = "gen_ai.agent.name"
CONVERSATION = "gen_ai.conversation.id"
REQUEST_MODEL = "gen_ai.request.model"
TEMPERATURE = "gen_ai.request.temperature"
TOP_P = "gen_ai.request.top_p"
MAX_TOKENS = "gen_ai.request.max_tokens"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL = "gen_ai.tool.call.id"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
EVALUATION = "gen_ai.evaluation.result"
EVALUATION_NAME = "gen_ai.evaluation.name"
EVALUATION_SCORE = "gen_ai.evaluation.score.value"
EVALUATION_LABEL = "gen_ai.evaluation.score.label"
ERROR_TYPE = "error.type"

# Ours
TASK = "atropos.task.id"
GROUP = "atropos.group"
MEMBER = "atropos.member"
STEP = "atropos.step"
EVALUATING = "atropos.evaluating"
REWARD = "atropos.reward"
VERDICT = "atropos.verdict"
SOLVED = "atropos.solved"
STOP_REASON = "atropos.stop_reason"
TURNS = "atropos.turns"
TURN = "atropos.turn"
POLICY_VERSION = "atropos.policy_version"
IS_ERROR = "atropos.tool.is_error"

MAX_TEXT = 16_384
"""Characters of a message, an argument or a result in a span, if it may hold any."""


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The destination of spans. content: whether they hold the texts; else they hold their sizes."""

    tracer: Tracer
    content: bool = False


_TELEMETRY: ContextVar[Telemetry | None] = ContextVar("telemetry", default=None)


@contextmanager
def use_telemetry(telemetry: Telemetry) -> Iterator[None]:
    """Send the spans of this block, and of tasks begun in it, to `telemetry`."""
    before = _TELEMETRY.get()
    _TELEMETRY.set(telemetry)
    try:
        yield
    finally:
        _TELEMETRY.set(before)


@contextmanager
def span(name: str, attributes: Mapping[str, Any] | None = None, kind: SpanKind = SpanKind.INTERNAL) -> Iterator[Span]:
    """Record a span. attributes: those with the value None are left out. An exception marks it as an
    error."""
    found = _start_span(name, attributes or {}, kind)
    try:
        with use_span(found):
            yield found
    finally:
        found.end()


@contextmanager
def use_span(found: Span) -> Iterator[None]:
    """Make a block's spans parts of a span begun before. An exception marks this span as an error."""
    if found is trace.INVALID_SPAN:
        yield  # as the API would after a longer way
        return
    # What OpenTelemetry itself notes of an exception quotes it as it is.
    with (
        trace.use_span(found, record_exception=False, set_status_on_exception=False),
        on_failure(partial(record_failure, found)),
    ):
        yield


def begin_turn(index: int) -> Span:
    """Begin a turn's span, numbered from 0: `use_span` goes on with it, `end` ends it."""
    return _start_span(f"turn {index}", {TURN: index}, SpanKind.INTERNAL)


def end(found: Span) -> None:
    """End a span, if it hasn't ended yet."""
    if found.is_recording():
        found.end()


def _start_span(name: str, attributes: Mapping[str, Any], kind: SpanKind) -> Span:
    telemetry = _TELEMETRY.get()
    if telemetry is None and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return trace.INVALID_SPAN  # nobody has set a tracer
    tracer = telemetry.tracer if telemetry else trace.get_tracer(SCOPE)
    found = tracer.start_span(_clean(name), kind=kind)
    set_attributes(found, attributes)
    return found


@asynccontextmanager
async def record_opening(what: str, manager: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    """Enter and leave a slow context manager, and record both."""
    async with AsyncExitStack() as stack:
        with span(f"{what} open"):
            value = await stack.enter_async_context(manager)
        yield value
        with span(f"{what} close"):
            await stack.aclose()


def set_attributes(found: Span, attributes: Mapping[str, Any]) -> None:
    """Add attributes to a span, except those with the value None."""
    if found.is_recording():
        known = {key: value for key, value in attributes.items() if value is not None}
        found.set_attributes({key: _clean(value) if isinstance(value, str) else value for key, value in known.items()})


def trace_environment() -> dict[str, str]:
    """Return the variables for a program that continues the current trace (W3C's Trace Context); none without a
    trace."""
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return {name.upper(): value for name, value in carrier.items()}


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a trace, for requests from elsewhere that belong to it, such as a request to a server of ours."""

    telemetry: Telemetry | None
    context: Context

    @classmethod
    def here(cls) -> Place:
        """Return the place of this call."""
        return cls(_TELEMETRY.get(), get_current())

    @contextmanager
    def enter_unless_traced(self) -> Iterator[None]:
        """Make this the current place while the block runs, unless a span is open already."""
        if trace.get_current_span().is_recording() or self.telemetry is None:
            yield
            return
        token = attach(self.context)
        try:
            with use_telemetry(self.telemetry):
                yield
        finally:
            detach(token)


@contextmanager
def engine_call(model: str, config: AgentConfig, prompt: int, most: int | None) -> Iterator[Span]:
    """Record a request to an inference server. prompt: its tokens; most: how many it may answer with; None for any."""
    attributes = {
        OPERATION: "chat",
        PROVIDER: "atropos",
        REQUEST_MODEL: model or None,
        TEMPERATURE: config.temperature,
        TOP_P: config.top_p,
        MAX_TOKENS: most,
        INPUT_TOKENS: prompt or None,
    }
    with span(f"chat {model}".strip(), attributes, SpanKind.CLIENT) as found:
        yield found


def record_reply(
    found: Span,
    messages: Callable[[], Sequence[Message]],
    text: Callable[[], str],
    *,
    tokens: int,
    reason: str,
    version: int | None,
) -> None:
    """Add a reply to the span of its request. messages: returns the messages before it. text: returns its text."""
    set_attributes(found, {OUTPUT_TOKENS: tokens, FINISH_REASONS: [reason], POLICY_VERSION: version})
    if _holds_content(found):
        output = {"role": "assistant", "parts": [_part(text())], "finish_reason": reason}
        inputs = [{"role": message["role"], "parts": [_part(str(message["content"]))]} for message in messages()]
        set_attributes(found, {INPUT_MESSAGES: json.dumps(inputs), OUTPUT_MESSAGES: json.dumps([output])})


@contextmanager
def tool_call(call: ToolCall) -> Iterator[Span]:
    """Record a call of a tool."""
    attributes = {OPERATION: "execute_tool", TOOL: call.name, TOOL_TYPE: "function", TOOL_CALL: call.id or None}
    with span(f"execute_tool {call.name[:100]}", attributes) as found:
        if _holds_content(found):
            set_attributes(found, {TOOL_ARGUMENTS: json.dumps(call.arguments, default=str)[:MAX_TEXT]})
        yield found


def record_result(found: Span, result: ToolResult) -> None:
    """Add a result to the span of its call. An error of a tool is the model's affair: the span is no error."""
    set_attributes(found, {IS_ERROR: result.is_error})
    if _holds_content(found):
        set_attributes(found, {TOOL_RESULT: result.content[:MAX_TEXT]})


def record_rollout(found: Span, result: AgentResult, *, rollout: str, reward: float, verdict: float) -> None:
    """Add a rollout's outcome to its span."""
    attributes = {
        CONVERSATION: rollout,
        REQUEST_MODEL: result.conditions.model or None,
        INPUT_TOKENS: sum(step.prompt_tokens for step in result.steps),
        OUTPUT_TOKENS: sum(step.completion_tokens for step in result.steps),
        TURNS: len(result.steps),
        STOP_REASON: result.stop_reason and result.stop_reason.value,
        REWARD: reward,
        VERDICT: verdict,
        SOLVED: verdict >= 1.0,
    }
    set_attributes(found, attributes)
    score: dict[str, str | float] = {EVALUATION_NAME: "verifier", EVALUATION_SCORE: verdict}
    score[EVALUATION_LABEL] = "solved" if verdict >= 1.0 else "not solved"
    found.add_event(EVALUATION, score)


def record_failure(found: Span, error: BaseException) -> None:
    """Note on a span how it failed."""
    found.set_status(Status(StatusCode.ERROR, _clean(str(error))[:MAX_TEXT]))
    set_attributes(found, {ERROR_TYPE: type(error).__name__})


def _holds_content(found: Span) -> bool:
    telemetry = _TELEMETRY.get()
    return telemetry is not None and telemetry.content and found.is_recording()


def _clean(text: str) -> str:
    """Return text that UTF-8 can hold, as the protocol requires. JSON lets a model write a lone surrogate, and one
    would cost all spans sent with it."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _part(text: str) -> dict[str, str]:
    return {"type": "text", "content": text[:MAX_TEXT]}
