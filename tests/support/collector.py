"""An OpenTelemetry collector: an OTLP/HTTP receiver that decodes the spans of processes."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Span:
    """A span, and the process that sent it."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    failed: bool
    took_ms: float
    attributes: dict[str, Any]


class Collector:
    """Stores spans while it collects. `raw` contains all received bytes."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.raw = b""

    def of(self, trace_id: str) -> list[Span]:
        return [span for span in self.spans if span.trace_id == trace_id]

    @contextmanager
    def collecting(self) -> Iterator[Mapping[str, str]]:
        """Listen, and yield the settings for processes that send spans."""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                assert self.headers["Content-Type"] == "application/x-protobuf"
                collector.take(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *words: Any) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.05,))
            thread.start()
            try:
                yield {"PAYINTENT_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_port}"}
            finally:
                server.shutdown()
                thread.join()

    def take(self, body: bytes) -> None:
        self.raw += body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource_attributes = _values(resource.resource.attributes)
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                self.spans.append(
                    Span(
                        service=resource_attributes["service.name"],
                        name=span.name,
                        trace_id=span.trace_id.hex(),
                        span_id=span.span_id.hex(),
                        parent_id=span.parent_span_id.hex(),
                        kind=span.kind,
                        failed=span.status.code == 2,
                        took_ms=(span.end_time_unix_nano - span.start_time_unix_nano) / 1e6,
                        attributes=_values(span.attributes),
                    )
                )


def _values(attributes: Any) -> dict[str, Any]:
    return {
        attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value"))
        for attribute in attributes
    }
