"""The gateway's Prometheus metrics. No label is ever chosen by a tenant.

What requests count are plain numbers; only who reads them pays for Prometheus's own objects.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Literal

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from serving.contract.usage import UsageEvent

PREFIX = "penstock_gateway_"
QUEUE_BUCKETS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 30.0)
TTFT_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
GAP_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)
TOTAL_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)

Family = CounterMetricFamily | HistogramMetricFamily


class Histogram:
    """How many seconds fell at or below each of some bounds, and all of them together."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def add_to(self, family: HistogramMetricFamily, labels: list[str]) -> None:
        """Tell what was counted."""
        bounds = [floatToGoString(bound) for bound in (*self._bounds, float("inf"))]  # type: ignore[no-untyped-call]
        buckets = list(zip(bounds, accumulate(self._counts), strict=True))
        family.add_metric(labels, buckets=buckets, sum_value=self._sum)


class VariantCounts:
    """What is counted of one variant; input is the part that was not cached."""

    def __init__(self) -> None:
        self.input_tokens = 0
        self.cached_input_tokens = 0
        self.output_tokens = 0
        self.cache_hits = 0
        self.queue = Histogram(QUEUE_BUCKETS)
        self.ttft = Histogram(TTFT_BUCKETS)
        self.gap = Histogram(GAP_BUCKETS)
        self.total = Histogram(TOTAL_BUCKETS)


class Metrics(Collector):
    """One registry per gateway; `responses` are by status, `endings` by endpoint and outcome."""

    def __init__(self) -> None:
        self.responses: Counter[int | None] = Counter()
        self.endings: Counter[tuple[str, str]] = Counter()
        self.variants: defaultdict[str, VariantCounts] = defaultdict(VariantCounts)
        self.waits: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(QUEUE_BUCKETS))
        """For a slot, by tier."""
        self.keyed: Counter[str] = Counter()
        """Requests with an idempotency key, by what became of them."""
        self.rate_limited: Counter[tuple[str, str]] = Counter()
        """Refusals by rate limits, by whose it was and of what."""
        self.hedges: Counter[str] = Counter()
        """Second tries at late first tokens, by which of the two went on."""
        self.retries = 0
        self.overstated = 0
        self.unmetered = 0
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def note_end(self, event: UsageEvent) -> None:
        """Count a request that reached an engine."""
        self.endings[event.endpoint, event.outcome] += 1
        counts, cached = self.variants[event.variant_id], event.cached_input_tokens
        counts.input_tokens += event.input_tokens - cached
        counts.cached_input_tokens += cached
        counts.output_tokens += event.output_tokens
        counts.cache_hits += cached > 0
        counts.queue.observe(event.queue_seconds)
        self.waits[event.tier].observe(event.queue_seconds)
        counts.total.observe(event.total_seconds)
        if event.ttft_seconds is not None:
            counts.ttft.observe(event.ttft_seconds)

    def note_hedge(self, event: UsageEvent, winner: Literal["first", "second"]) -> None:
        """Count a try that another one outran."""
        self.endings[event.endpoint, event.outcome] += 1
        self.hedges[winner] += 1

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a gauge that is read when scraped."""
        Gauge(PREFIX + name, text, registry=self.registry).set_function(read)

    def collect(self) -> Iterator[Family]:
        """Tell Prometheus everything but the gauges."""
        yield from self._counters()
        yield self._times("queue_seconds", "Wait for a slot.", lambda of: of.queue)
        waits = HistogramMetricFamily(
            PREFIX + "wait_seconds", "Wait for a slot, by tier.", labels=("tier",)
        )
        for tier, histogram in self.waits.items():
            histogram.add_to(waits, [tier])
        yield waits
        yield self._times("ttft_seconds", "Time to first token.", lambda of: of.ttft)
        yield self._times("inter_token_seconds", "Gap between chunks.", lambda of: of.gap)
        yield self._times("request_seconds", "Whole request.", lambda of: of.total)

    def _counters(self) -> Iterator[CounterMetricFamily]:
        responses = _counter("responses", "Replies by status.", ("status",))
        for status, count in self.responses.items():
            responses.add_metric([str(status)], count)
        requests = _counter(
            "requests", "Requests that reached an engine, by ending.", ("endpoint", "outcome")
        )
        for ending, count in self.endings.items():
            requests.add_metric(ending, count)
        keyed = _counter("keyed_requests", "With an idempotency key, by what came.", ("ending",))
        for how, count in self.keyed.items():
            keyed.add_metric([how], count)
        limited = _counter("rate_limited", "Refused by a rate limit.", ("owner", "measure"))
        for refused, count in self.rate_limited.items():
            limited.add_metric(refused, count)
        tokens = _counter("tokens", "Tokens metered.", ("variant", "kind"))
        hits = _counter("cache_hits", "Requests with cached input tokens.", ("variant",))
        for variant, counts in self.variants.items():
            tokens.add_metric([variant, "input"], counts.input_tokens)
            tokens.add_metric([variant, "cached_input"], counts.cached_input_tokens)
            tokens.add_metric([variant, "output"], counts.output_tokens)
            hits.add_metric([variant], counts.cache_hits)
        retries = _counter("retries", "Second tries before the first byte.")
        retries.add_metric([], self.retries)
        hedges = _counter("hedges", "Second tries at late first tokens.", ("winner",))
        for winner, count in self.hedges.items():
            hedges.add_metric([winner], count)
        overstated = _counter("overstated", "Usage beyond what was asked, cut to it.")
        overstated.add_metric([], self.overstated)
        unmetered = _counter(
            "unmetered_hangups", "Clients that left an engine before it said any usage."
        )
        unmetered.add_metric([], self.unmetered)
        yield from (
            responses,
            requests,
            keyed,
            limited,
            tokens,
            hits,
            retries,
            hedges,
            overstated,
            unmetered,
        )

    def _times(
        self, name: str, text: str, of: Callable[[VariantCounts], Histogram]
    ) -> HistogramMetricFamily:
        family = HistogramMetricFamily(PREFIX + name, text, labels=("variant",))
        for variant, counts in self.variants.items():
            of(counts).add_to(family, [variant])
        return family


def _counter(name: str, text: str, labels: tuple[str, ...] = ()) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, text, labels=labels)
