"""A receiver of spans by OTLP over HTTP, and what tests ask of a trace."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class ReceivedSpan:
    """A span as it arrived. start, end: in nanoseconds."""

    trace: bytes
    id: bytes
    parent: bytes
    name: str
    start: int
    end: int
    told: dict[str, Any]
    failed: bool
    events: list[str] = field(default_factory=list)


class OTLPReceiver:
    """Takes spans on a free loopback port. Use it as `with`. status: what it answers with."""

    def __init__(self, status: int = 200) -> None:
        self.spans: list[ReceivedSpan] = []
        self.resources: list[dict[str, str]] = []
        self.requests = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests += 1
                if status == 200 and self.path == "/v1/traces":
                    receiver.take(body)
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append({item.key: item.value.string_value for item in resource.resource.attributes})
            for scope in resource.scope_spans:
                self.spans += [_span(span) for span in scope.spans]

    def __enter__(self) -> OTLPReceiver:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def roots(self) -> list[ReceivedSpan]:
        return [span for span in self.spans if not span.parent]

    def below(self, parent: ReceivedSpan) -> list[ReceivedSpan]:
        """The children of a span, in the order in which they began."""
        found = (span for span in self.spans if (span.trace, span.parent) == (parent.trace, parent.id))
        return sorted(found, key=lambda span: span.start)


def _span(span: Any) -> ReceivedSpan:
    told = {item.key: _value(item.value) for item in span.attributes}
    times = span.start_time_unix_nano, span.end_time_unix_nano
    events = [event.name for event in span.events]
    return ReceivedSpan(
        span.trace_id, span.span_id, span.parent_span_id, span.name, *times, told, span.status.code == 2, events
    )


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    found = getattr(value, kind)
    return [_value(item) for item in found.values] if kind == "array_value" else found
