"""Structured log lines and OpenTelemetry spans of the data plane, never with content."""

import logging
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

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
Describe = Callable[[], Attributes]
"""Called only where spans are exported."""

_TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def valid_traceparent(header: str) -> str | None:
    """Return a client's W3C context when it is one; nothing else is ever passed on."""
    return header if header and _TRACEPARENT.fullmatch(header) else None


EngineCall = AbstractContextManager[str | None, bool | None]
"""Yields the traceparent to send an engine."""


class RequestTrace(Protocol):
    """The trace of one request."""

    def engine_call(self) -> EngineCall:
        """Open the engine's part; yields the context to send it."""
        ...

    def end(self, describe: Describe, error: str | None) -> None:
        """Close the request's span, naming the kind of error if there was one."""
        ...


class PassthroughTrace:
    """Exports nothing; the engine gets the client's own context."""

    def __init__(self, traceparent: str | None) -> None:
        self._traceparent = traceparent

    def engine_call(self) -> EngineCall:
        """Return the client's context."""
        return self

    def __enter__(self) -> str | None:
        return self._traceparent

    def __exit__(self, *exc: object) -> None:
        return None

    def end(self, describe: Describe, error: str | None) -> None:
        """Do nothing."""


class ExportingTrace:
    """A server span and its children."""

    def __init__(self, tracer: "Tracer", span: "Span") -> None:
        self._tracer = tracer
        self._span = span

    @contextmanager
    def _engine_call(self) -> Iterator[str | None]:
        from opentelemetry.trace import SpanKind, set_span_in_context

        parent = set_span_in_context(self._span)
        with self._tracer.start_as_current_span(
            "engine call", context=parent, kind=SpanKind.CLIENT, record_exception=False
        ) as span:
            context = span.get_span_context()
            flags = int(context.trace_flags)
            yield f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"

    def engine_call(self) -> EngineCall:
        """Open a child span and return its context."""
        return self._engine_call()

    def end(self, describe: Describe, error: str | None) -> None:
        """Close the span. No exception is recorded: its text might hold content."""
        from opentelemetry.trace import StatusCode

        self._span.set_attributes(dict(describe()))
        if error is not None:
            self._span.set_attribute("error.type", error)
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


class RequestTracing:
    """Begins traces; exporting ones only when given a provider."""

    def __init__(self, provider: "TracerProvider | None" = None) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("penstock") if provider else None

    def begin(
        self, name: str, traceparent: str | None, describe: Describe, elapsed_seconds: float
    ) -> RequestTrace:
        """Begin the trace of a request that arrived `elapsed_seconds` ago."""
        if self._tracer is None:
            return PassthroughTrace(traceparent)
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier = {"traceparent": traceparent} if traceparent else {}
        span = self._tracer.start_span(
            name,
            context=TraceContextTextMapPropagator().extract(carrier),
            kind=SpanKind.SERVER,
            attributes=dict(describe()),
            start_time=time.time_ns() - int(elapsed_seconds * 1e9),
        )
        return ExportingTrace(self._tracer, span)

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
