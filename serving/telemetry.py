"""Structured log lines and OpenTelemetry spans of the data plane, never with content."""

import logging
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer


def configure(log_format: str) -> None:
    """Send every log line through one renderer: `json`, or readable for `console`."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *_renderers(log_format),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _renderers(log_format: str) -> list[structlog.typing.Processor]:
    if log_format == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    # Plain tracebacks: structlog's own choice would print the local variables, secrets and all.
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]


Attributes = Mapping[str, str | int | float | bool]
_TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def valid_traceparent(header: str) -> str | None:
    """Return a client's W3C context when it is one; nothing else is ever passed on."""
    return header if header and _TRACEPARENT.fullmatch(header) else None


class RequestTrace:
    """A server span and its children."""

    def __init__(self, tracer: "Tracer", span: "Span") -> None:
        self._tracer = tracer
        self._span = span

    @contextmanager
    def engine_call(self) -> Iterator[str]:
        """Open a child span; yields the traceparent to send an engine."""
        from opentelemetry.trace import SpanKind, set_span_in_context

        parent = set_span_in_context(self._span)
        with self._tracer.start_as_current_span(
            "engine call", context=parent, kind=SpanKind.CLIENT, record_exception=False
        ) as span:
            context = span.get_span_context()
            flags = int(context.trace_flags)
            yield f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"

    def end(self, attributes: Attributes, error: str | None) -> None:
        """Close the span. No exception is recorded: its text might hold content."""
        from opentelemetry.trace import StatusCode

        self._span.set_attributes(dict(attributes))
        if error is not None:
            self._span.set_attribute("error.type", error)
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


class RequestTracing:
    """Begins traces, where there is a provider that exports them."""

    def __init__(self, provider: "TracerProvider | None" = None) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("penstock") if provider else None
        self.is_exporting = provider is not None
        """Whether anybody collects spans; an engine is told the client's own context else."""

    def begin(
        self, name: str, traceparent: str | None, attributes: Attributes, elapsed_seconds: float
    ) -> "RequestTrace":
        """Begin the trace of a request that arrived `elapsed_seconds` ago."""
        if self._tracer is None:
            raise RuntimeError("nobody collects spans")
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier = {"traceparent": traceparent} if traceparent else {}
        span = self._tracer.start_span(
            name,
            context=TraceContextTextMapPropagator().extract(carrier),
            kind=SpanKind.SERVER,
            attributes=dict(attributes),
            start_time=time.time_ns() - int(elapsed_seconds * 1e9),
        )
        return RequestTrace(self._tracer, span)

    def close(self) -> None:
        """Send what is not yet exported."""
        if self._provider is not None:
            self._provider.shutdown()


def open_tracing(endpoint: str | None, service: str) -> RequestTracing:
    """Return tracing that exports over OTLP when there is an endpoint."""
    if endpoint is None:
        return RequestTracing()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return RequestTracing(provider)
