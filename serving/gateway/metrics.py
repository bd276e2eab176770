"""The gateway's Prometheus metrics. No label is ever chosen by a tenant."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from serving.contract.usage import UsageEvent

QUEUE_BUCKETS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 30.0)
TTFT_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
GAP_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)
TOTAL_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)


@dataclass(frozen=True, slots=True)
class VariantMeters:
    """What is counted per variant; finding a child by its labels costs more than counting."""

    add_input: Callable[[float], None]
    add_cached_input: Callable[[float], None]
    add_output: Callable[[float], None]
    add_cache_hit: Callable[[], None]
    observe_queue: Callable[[float], None]
    observe_ttft: Callable[[float], None]
    observe_gap: Callable[[float], None]
    observe_total: Callable[[float], None]


class Metrics:
    """One registry per gateway; children are looked up once and kept."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.responses = self._counter("responses", "Replies by status.", ("status",))
        self.requests = self._counter(
            "requests", "Requests that reached an engine, by ending.", ("endpoint", "outcome")
        )
        self.tokens = self._counter("tokens", "Tokens metered.", ("variant", "kind"))
        self.cache_hits = self._counter(
            "cache_hits", "Requests with cached input tokens.", ("variant",)
        )
        self.retries = self._counter("retries", "Second tries before the first byte.", ())
        self.overruns = self._counter("hold_overruns", "Charges above their hold.", ())
        self.queue = self._histogram("queue_seconds", "Wait for a slot.", QUEUE_BUCKETS)
        self.ttft = self._histogram("ttft_seconds", "Time to first token.", TTFT_BUCKETS)
        self.gap = self._histogram("inter_token_seconds", "Gap between chunks.", GAP_BUCKETS)
        self.total = self._histogram("request_seconds", "Whole request.", TOTAL_BUCKETS)
        self.variant = lru_cache(self._variant)
        self.ending = lru_cache(self._ending)
        self.response = lru_cache(self._response)

    def note_end(self, event: UsageEvent) -> None:
        """Count a request that reached an engine."""
        self.ending(event.endpoint, event.outcome)()
        meters = self.variant(event.variant_id)
        meters.add_input(event.input_tokens - event.cached_input_tokens)
        meters.add_output(event.output_tokens)
        if event.cached_input_tokens:
            meters.add_cached_input(event.cached_input_tokens)
            meters.add_cache_hit()
        meters.observe_queue(event.queue_seconds)
        meters.observe_total(event.total_seconds)
        if event.ttft_seconds is not None:
            meters.observe_ttft(event.ttft_seconds)

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a gauge that is read when scraped."""
        Gauge(f"penstock_gateway_{name}", text, registry=self.registry).set_function(read)

    def _variant(self, variant_id: str) -> "VariantMeters":
        return VariantMeters(
            add_input=self.tokens.labels(variant_id, "input").inc,
            add_cached_input=self.tokens.labels(variant_id, "cached_input").inc,
            add_output=self.tokens.labels(variant_id, "output").inc,
            add_cache_hit=self.cache_hits.labels(variant_id).inc,
            observe_queue=self.queue.labels(variant_id).observe,
            observe_ttft=self.ttft.labels(variant_id).observe,
            observe_gap=self.gap.labels(variant_id).observe,
            observe_total=self.total.labels(variant_id).observe,
        )

    def _ending(self, endpoint: str, outcome: str) -> Callable[[], None]:
        count: Callable[[], None] = self.requests.labels(endpoint, outcome).inc
        return count

    def _response(self, status: int | None) -> Callable[[], None]:
        count: Callable[[], None] = self.responses.labels(str(status)).inc
        return count

    def _counter(self, name: str, text: str, labels: Iterable[str]) -> Counter:
        return Counter(f"penstock_gateway_{name}", text, tuple(labels), registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(
            f"penstock_gateway_{name}", text, ("variant",), buckets=buckets, registry=self.registry
        )
