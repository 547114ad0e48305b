"""Open a sender of spans by OTLP. Needs OpenTelemetry's SDK, of an extra."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

_QUEUE = 50_000
"""Spans waiting to be sent, at most: more are dropped."""
_TRACES = "/v1/traces"


def open_provider(url: str, about: Mapping[str, str]) -> TracerProvider:
    """Return a provider of tracers whose spans are sent to the receiver at `url`. about: attributes of their source."""
    provider = TracerProvider(resource=Resource.create(dict(about)), shutdown_on_exit=False)
    endpoint = url if url.endswith(_TRACES) else url.rstrip("/") + _TRACES
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint), max_queue_size=_QUEUE))
    return provider
