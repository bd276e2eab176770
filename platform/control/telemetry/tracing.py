"""Traces of control: a span per request and per task, W3C context from whoever asks to whoever is
asked. Without an endpoint to export to, nothing is done.

Spans tell routes and ids, never paths, addresses, bodies or the text of an exception.
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
    """Tell whether spans go anywhere."""
    return settings.CONFIG.traces_endpoint is not None


@cache
def provider(service: str) -> "TracerProvider | None":
    """Return what exports the spans of a service; None where there is nowhere to export to.

    Made at the first span, so that each of a worker's processes has its own.
    """
    if not is_on():
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    made = TracerProvider(resource=Resource.create({"service.name": service}))
    made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return made


class OptionalSpan:
    """A span that may not be there."""

    def __init__(self, span: "Span | None" = None) -> None:
        self._span = span

    def tell(self, name: str, attributes: Mapping[str, str | int]) -> None:
        """Say what it was, once that is known."""
        if self._span is not None:
            self._span.update_name(name)
            self._span.set_attributes(dict(attributes))

    def fail(self, kind: str) -> None:
        """Say what kind of failure it ended with."""
        if self._span is not None:
            from opentelemetry.trace import StatusCode

            self._span.set_attribute("error.type", kind)
            self._span.set_status(StatusCode.ERROR)


@contextmanager
def span(
    service: str, name: str, carrier: Mapping[str, str], *, is_task: bool
) -> Iterator[OptionalSpan]:
    """Open a span beneath the one that the carrier names, for as long as the block runs."""
    found = provider(service)
    if found is None:
        yield OptionalSpan()
        return
    from opentelemetry.trace import SpanKind

    with found.get_tracer("penstock").start_as_current_span(
        name,
        context=_context(carrier),
        kind=SpanKind.CONSUMER if is_task else SpanKind.SERVER,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        yield OptionalSpan(span)


def trace_headers() -> dict[str, str]:
    """Return the context of the span at work, to be sent along."""
    if not is_on():
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier


def _context(carrier: Mapping[str, str]) -> "Context":
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract(carrier)
