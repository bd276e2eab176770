"""An OTLP/HTTP receiver: keeps the spans that the processes of a stack export."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class ReceivedSpan:
    """One span, with the name of the service that made it; ids as hexadecimal text."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str


@dataclass
class Traces:
    """What has arrived so far at `endpoint`."""

    endpoint: str
    spans: list[ReceivedSpan] = field(default_factory=list)

    def of(self, trace_id: str) -> dict[str, ReceivedSpan]:
        """Return the spans of a trace by `service: name`."""
        return {f"{s.service}: {s.name}": s for s in list(self.spans) if s.trace_id == trace_id}

    def take(self, body: bytes) -> None:
        """Keep the spans of one export."""
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            named = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    ids = (span.trace_id, span.span_id, span.parent_span_id)
                    self.spans.append(
                        ReceivedSpan(named["service.name"], span.name, *(id_.hex() for id_ in ids))
                    )


class _Handler(BaseHTTPRequestHandler):
    traces: Traces

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.traces.take(body)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def receiving() -> Iterator[Traces]:
    """Receive traces on a free port of the loopback."""
    handler = type("Handler", (_Handler,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        handler.traces = Traces(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield handler.traces
        finally:
            server.shutdown()
            thread.join()
