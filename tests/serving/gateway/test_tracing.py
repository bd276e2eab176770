"""One trace per request, from the client's context to the engine's headers."""

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from serving.telemetry import RequestTracing, valid_traceparent

CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_what_is_no_context_is_dropped() -> None:
    assert valid_traceparent(CLIENT) == CLIENT
    assert valid_traceparent(CLIENT + "\r\nx: y") is None
    assert valid_traceparent("") is None


def test_the_request_and_the_engine_are_spans_of_the_clients_trace() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = RequestTracing(provider)
    trace = tracing.begin("chat demo", CLIENT, {"gen_ai.request.model": "demo"}, 0.5)
    with trace.engine_call() as traceparent:
        assert traceparent is not None
    trace.end({"gen_ai.usage.input_tokens": 3}, "model_unavailable")
    engine, server = exporter.get_finished_spans()
    assert server.parent is not None
    assert f"{server.parent.span_id:016x}" == CLIENT.split("-")[2]
    assert engine.parent is not None
    assert engine.parent.span_id == server.context.span_id
    assert traceparent.split("-")[1:3] == [CLIENT.split("-")[1], f"{engine.context.span_id:016x}"]
    assert dict(server.attributes or {}) == {
        "gen_ai.request.model": "demo",
        "gen_ai.usage.input_tokens": 3,
        "error.type": "model_unavailable",
    }
    tracing.close()
