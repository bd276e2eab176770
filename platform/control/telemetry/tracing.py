"""Traces of control: a span per request and per task, with W3C trace context in and out. Without an
endpoint to export to, nothing is done.

Spans hold routes and ids, never paths, addresses, bodies or the text of an exception.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from django.conf import settings

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span


def is_on() -> bool:
    """Return whether spans are exported."""
    return settings.CONFIG.traces_endpoint is not None


@cache
def provider(service: str) -> "TracerProvider | None":
    """Return the tracer provider of a service; None without an endpoint to export to.

    It is created at the first span, so that each of a worker's processes has its own.
    """
    if not is_on():
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    tracer_provider = TracerProvider(resource=Resource.create({"service.name": service}))
    tracer_provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return tracer_provider


class OptionalSpan:
    """A span, or nothing while tracing is off."""

    def __init__(self, span: "Span | None" = None) -> None:
        self._span = span

    def tell(self, name: str, attributes: Mapping[str, str | int]) -> None:
        """Set the span's name and attributes."""
        if self._span is not None:
            self._span.update_name(name)
            self._span.set_attributes(dict(attributes))

    def fail(self, kind: str) -> None:
        """Mark the span as failed with an error type."""
        if self._span is not None:
            from opentelemetry.trace import StatusCode

            self._span.set_attribute("error.type", kind)
            self._span.set_status(StatusCode.ERROR)


@contextmanager
def span(
    service: str, name: str, carrier: Mapping[str, str], *, is_task: bool
) -> Iterator[OptionalSpan]:
    """Open a child span of the one in the carrier for the duration of the block."""
    tracer_provider = provider(service)
    if tracer_provider is None:
        yield OptionalSpan()
        return
    from opentelemetry.trace import SpanKind

    with tracer_provider.get_tracer("penstock").start_as_current_span(
        name,
        context=_context(carrier),
        kind=SpanKind.CONSUMER if is_task else SpanKind.SERVER,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        yield OptionalSpan(span)


def trace_headers() -> dict[str, str]:
    """Return the trace context of the current span as headers."""
    if not is_on():
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier


def _context(carrier: Mapping[str, str]) -> "Context":
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract(carrier)
