"""Traces: one server span per request, a child for the engine's part, W3C context through both.

Without an endpoint to export to, a client's context is passed on and nothing else is done.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

Attributes = Mapping[str, str | int | float | bool]
Describe = Callable[[], Attributes]
"""Called only where spans are exported."""

_TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def valid_traceparent(header: str) -> str | None:
    """Return a client's W3C context when it is one; nothing else is ever passed on."""
    return header if header and _TRACEPARENT.fullmatch(header) else None


EngineCall = AbstractContextManager[str | None, bool | None]
"""Yields the traceparent to send an engine."""


class Trace(Protocol):
    """The trace of one request."""

    def engine_call(self) -> EngineCall:
        """Open the engine's part; yields the context to send it."""
        ...

    def end(self, describe: Describe, error: str | None) -> None:
        """Close the request's span, naming the kind of error if there was one."""
        ...


class PassedTrace:
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


class ExportedTrace:
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


class Tracing:
    """Begins traces; exporting ones only when given a provider."""

    def __init__(self, provider: "TracerProvider | None" = None) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("penstock") if provider else None

    def begin(
        self, name: str, traceparent: str | None, describe: Describe, elapsed_seconds: float
    ) -> Trace:
        """Begin the trace of a request that arrived `elapsed_seconds` ago."""
        if self._tracer is None:
            return PassedTrace(traceparent)
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
        return ExportedTrace(self._tracer, span)

    def close(self) -> None:
        """Send what is not yet exported."""
        if self._provider is not None:
            self._provider.shutdown()


def open_tracing(endpoint: str | None, service: str) -> Tracing:
    """Return tracing that exports over OTLP when there is an endpoint."""
    if endpoint is None:
        return Tracing()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider)
