"""What is counted in plain numbers reads as if Prometheus's own objects had counted it, and a page
of all metrics holds up no request."""

import time

import msgspec
import prometheus_client
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from serving.contract.usage import UsageEvent
from serving.gateway.metrics import QUEUE_BUCKETS, GatewayMetrics
from serving.gateway.operator_api import PoolCollector, exposition
from serving.pool.pool import Pool
from tests.fixtures import catalog
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
    metrics, registry = GatewayMetrics(), prometheus_client.CollectorRegistry()
    theirs = prometheus_client.Histogram(
        NAME, "Wait.", ("variant",), buckets=QUEUE_BUCKETS, registry=registry
    )
    for seconds in waits:
        metrics.variants["var_demo"].queue.observe(seconds)
        theirs.labels("var_demo").observe(seconds)
    ours = samples(metrics.registry)
    assert {key: ours[key] for key in samples(registry)} == samples(registry)


def test_a_request_counts_by_its_ending_and_its_tokens() -> None:
    metrics = GatewayMetrics()
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


def used(models: int) -> GatewayMetrics:
    """Return the metrics of a gateway on which each of so many models was used."""
    metrics, pools, ended = GatewayMetrics(), dict[str, Pool](), event()
    for number in range(models):
        name = f"var_{number:06}_of_a_usual_length"
        used_one: UsageEvent = msgspec.structs.replace(ended, variant_id=name)
        metrics.note_end(used_one)
        metrics.variants[name].gap.observe(0.01)
        pools[f"dep_{name}"] = pool = Pool(f"dep_{name}", share_of=lambda record: record.slots)
        pool.set_replicas({"rep_1": catalog.replica("http://r")})
        pool.choices["load"] += 1
        pool.queue.refusals["default", "queue_full"] += 1
    metrics.registry.register(PoolCollector(lambda: pools))
    return metrics


def steps(registry: prometheus_client.CollectorRegistry) -> tuple[bytes, list[float]]:
    """Return the page of all metrics, and the seconds of CPU that each of its steps took."""
    page, seconds = exposition(registry), list[float]()
    while True:
        began = time.thread_time()
        try:
            page.send(None)
        except StopIteration as ended:
            return ended.value, [*seconds, time.thread_time() - began]
        seconds.append(time.thread_time() - began)


def test_a_page_reads_as_the_library_writes_it() -> None:
    metrics = used(3)
    metrics.gauge("in_flight", "Requests under way.", lambda: 2.5)
    metrics.endings['a"b', "c\\d\ne"] = 7
    assert steps(metrics.registry)[0] == generate_latest(metrics.registry)


def test_a_scrape_at_300_models_holds_the_loop_for_5_ms_at_most() -> None:
    registry = used(300).registry
    tries = [steps(registry)[1] for _ in range(3)]
    assert min(max(seconds) for seconds in tries) <= 0.005
