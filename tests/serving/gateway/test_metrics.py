"""What is counted in plain numbers reads as if Prometheus's own objects had counted it."""

import msgspec
import prometheus_client
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from serving.gateway.metrics import QUEUE_BUCKETS, Metrics
from tests.fixtures.events import event

NAME = "penstock_gateway_queue_seconds"
SECONDS = st.sampled_from(QUEUE_BUCKETS) | st.floats(0, 100)


def samples(registry: prometheus_client.CollectorRegistry) -> dict[tuple[object, ...], float]:
    """Return every sample of a page by its name and labels."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


@given(st.lists(SECONDS, min_size=1, max_size=30))
def test_a_histogram_reads_as_the_librarys_own(waits: list[float]) -> None:
    metrics, registry = Metrics(), prometheus_client.CollectorRegistry()
    theirs = prometheus_client.Histogram(
        NAME, "Wait.", ("variant",), buckets=QUEUE_BUCKETS, registry=registry
    )
    for seconds in waits:
        metrics.variants["var_demo"].queue.observe(seconds)
        theirs.labels("var_demo").observe(seconds)
    ours = samples(metrics.registry)
    assert {key: ours[key] for key in samples(registry)} == samples(registry)


def test_a_request_counts_by_its_ending_and_its_tokens() -> None:
    metrics = Metrics()
    tokens = {"input_tokens": 10, "cached_input_tokens": 4, "output_tokens": 3}
    ended = msgspec.structs.replace(event(), **tokens)
    metrics.note_end(ended)
    metrics.note_end(ended)
    metrics.responses[200] += 2
    read, variant = samples(metrics.registry), ("variant", ended.variant_id)
    assert read["penstock_gateway_responses_total", ("status", "200")] == 2
    ending = (("endpoint", ended.endpoint), ("outcome", "completed"))
    assert read["penstock_gateway_requests_total", *ending] == 2
    for kind, tokens in {"input": 12, "cached_input": 8, "output": 6}.items():
        assert read["penstock_gateway_tokens_total", ("kind", kind), variant] == tokens
    assert read["penstock_gateway_cache_hits_total", variant] == 2
    assert read["penstock_gateway_request_seconds_count", variant] == 2
    assert read["penstock_gateway_retries_total",] == 0
