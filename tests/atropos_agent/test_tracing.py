"""The names of what spans say are those of the conventions, and hostile text costs nobody's spans."""

from contextvars import Context

import pytest

from atropos_agent import tracing
from atropos_agent.types import AgentConfig
from tools.base import ToolCall, ToolResult

trace_sdk = pytest.importorskip("opentelemetry.sdk.trace")

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402


@pytest.fixture
def spans():
    exporter, provider = InMemorySpanExporter(), trace_sdk.TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with tracing.use_telemetry(tracing.Telemetry(provider.get_tracer("test"), content=True)):
        yield exporter


def test_every_name_that_is_not_ours_is_one_of_the_conventions():
    conventions = pytest.importorskip("opentelemetry.semconv._incubating.attributes.gen_ai_attributes")
    known = {value for value in vars(conventions).values() if isinstance(value, str)}
    named = {value for value in vars(tracing).values() if isinstance(value, str) and value.startswith("gen_ai.")}
    assert named - {tracing.EVALUATION} <= known  # an event's name


def test_hostile_text_can_be_sent(spans):
    call = ToolCall("\ud800" * 300, {"a": "\udfff", "b": [float("nan")]}, "\ud801")
    with tracing.tool_call(call) as span:
        tracing.record_result(span, ToolResult("\udcff" * 100_000, call=call))
    with pytest.raises(ValueError, match="odd"), tracing.span("turn", {"x": "\ud800"}):
        raise ValueError("odd \ud800")
    tool, failed = spans.get_finished_spans()
    assert encode_spans([tool, failed]).SerializeToString()
    assert len(tool.attributes[tracing.TOOL_RESULT]) == tracing.MAX_TEXT
    assert failed.attributes[tracing.ERROR_TYPE] == "ValueError"


async def test_what_is_entered_and_left_is_told_also_when_it_fails(spans):
    class Manager:
        left = None

        async def __aenter__(self):
            return 7

        async def __aexit__(self, kind, error, traceback):
            self.left = kind

    manager = Manager()
    async with tracing.record_opening("sandbox", manager) as value:
        assert value == 7
    assert manager.left is None
    with pytest.raises(OSError, match="gone"):
        async with tracing.record_opening("sandbox", manager):
            raise OSError("gone")
    assert manager.left is OSError
    names = [span.name for span in spans.get_finished_spans()]
    assert names == ["sandbox open", "sandbox close", "sandbox open"]


def test_without_a_trace_a_program_is_told_none(spans):
    assert tracing.trace_environment() == {}
    with tracing.span("x") as span:
        assert tracing.trace_environment()["TRACEPARENT"].split("-")[2] == f"{span.get_span_context().span_id:016x}"


def test_what_is_asked_from_elsewhere_belongs_to_the_place_of_the_rollout(spans):
    def ask():
        with place.enter_unless_traced(), tracing.engine_call("m", AgentConfig(), 3, 5):
            pass

    with tracing.span("rollout"):
        place = tracing.Place.here()
        with tracing.span("turn"):
            ask()
    Context().run(ask)  # as a server's handler, which knows nothing of the rollout
    asked, turn, rollout, outside = spans.get_finished_spans()
    assert asked.parent.span_id == turn.context.span_id
    assert outside.parent.span_id == rollout.context.span_id


def test_spans_go_to_the_provider_that_a_program_has_set_and_nowhere_without_one(monkeypatch):
    with tracing.span("alone") as found:
        assert not found.is_recording()
    exporter, provider = InMemorySpanExporter(), trace_sdk.TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing.trace, "get_tracer_provider", lambda: provider)
    tracing.end(tracing.begin_turn(3))
    assert [span.name for span in exporter.get_finished_spans()] == ["turn 3"]
