"""The gateway's Prometheus metrics. No label is ever chosen by a tenant."""

from collections.abc import Callable, Iterable
from functools import lru_cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from serving.contract.usage import UsageEvent

QUEUE_BUCKETS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 30.0)
TTFT_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
GAP_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)
TOTAL_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)


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
        self.gap_seconds = lru_cache(self._gap_seconds)

    def note_end(self, event: UsageEvent) -> None:
        """Count a request that reached an engine."""
        variant, outcome = event.variant_id, event.outcome
        self.requests.labels(event.endpoint, outcome).inc()
        uncached = event.input_tokens - event.cached_input_tokens
        self.tokens.labels(variant, "input").inc(uncached)
        self.tokens.labels(variant, "cached_input").inc(event.cached_input_tokens)
        self.tokens.labels(variant, "output").inc(event.output_tokens)
        if event.cached_input_tokens:
            self.cache_hits.labels(variant).inc()
        self.queue.labels(variant).observe(event.queue_seconds)
        self.total.labels(variant).observe(event.total_seconds)
        if event.ttft_seconds is not None:
            self.ttft.labels(variant).observe(event.ttft_seconds)

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a gauge that is read when scraped."""
        Gauge(f"penstock_gateway_{name}", text, registry=self.registry).set_function(read)

    def _gap_seconds(self, variant_id: str) -> Callable[[float], None]:
        observe: Callable[[float], None] = self.gap.labels(variant_id).observe
        return observe

    def _counter(self, name: str, text: str, labels: Iterable[str]) -> Counter:
        return Counter(f"penstock_gateway_{name}", text, tuple(labels), registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(
            f"penstock_gateway_{name}", text, ("variant",), buckets=buckets, registry=self.registry
        )
