"""The gateway's Prometheus metrics. No label is ever chosen by a tenant.

What requests count are plain numbers; only who reads them pays for Prometheus's own objects.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Literal

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from serving.contract.usage import UsageEvent

PREFIX = "penstock_gateway_"
QUEUE_BUCKETS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 30.0)
TTFT_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
GAP_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)
TOTAL_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)
BOUND_NAMES: dict[tuple[float, ...], list[str]] = {
    bounds: [floatToGoString(bound) for bound in (*bounds, float("inf"))]  # type: ignore[no-untyped-call]
    for bounds in (QUEUE_BUCKETS, TTFT_BUCKETS, GAP_BUCKETS, TOTAL_BUCKETS)
}

Labels = tuple[str, ...]
Counts = Iterable[tuple[Labels, float]]
"""Values by labels."""


class Readings(Iterable[Sample]):
    """Samples that are made as they are read, however often that is."""

    def __init__(self, read: Callable[[], Iterator[Sample]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[Sample]:
        return self._read()


def family(
    kind: Literal["counter", "gauge", "histogram"],
    name: str,
    text: str,
    read: Callable[[], Iterator[Sample]],
) -> Metric:
    """Return a metric family whose samples are made as they are read."""
    made = Metric(name, text, kind)
    made.samples = Readings(read)  # type: ignore[assignment]
    return made


def counter(name: str, text: str, labels: Labels, read: Callable[[], Counts]) -> Metric:
    """Return a counter whose values are read when it is scraped."""
    name = PREFIX + name

    def samples() -> Iterator[Sample]:
        for values, count in read():
            yield Sample(name + "_total", dict(zip(labels, values, strict=True)), count)

    return family("counter", name, text, samples)


def gauge(name: str, text: str, labels: Labels, read: Callable[[], Counts]) -> Metric:
    """Return a gauge whose values are read when it is scraped."""
    name = PREFIX + name

    def samples() -> Iterator[Sample]:
        for values, value in read():
            yield Sample(name, dict(zip(labels, values, strict=True)), value)

    return family("gauge", name, text, samples)


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

    def observe_all(self, seconds: list[float]) -> None:
        """Count several durations."""
        bounds, counts = self._bounds, self._counts
        for each in seconds:
            counts[bisect_left(bounds, each)] += 1
        self._sum += sum(seconds)

    def samples(self, name: str, labels: Mapping[str, str]) -> list[Sample]:
        """Return what was counted, all of one moment."""
        counts = list(accumulate(self._counts))
        buckets = zip(BOUND_NAMES[self._bounds], counts, strict=True)
        return [
            *(Sample(name + "_bucket", {**labels, "le": le}, count) for le, count in buckets),
            Sample(name + "_count", dict(labels), counts[-1]),
            Sample(name + "_sum", dict(labels), self._sum),
        ]


class VariantMetrics:
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


class GatewayMetrics(Collector):
    """One registry per gateway; `responses` are by status, `endings` by endpoint and outcome."""

    def __init__(self) -> None:
        self.responses: Counter[int | None] = Counter()
        self.endings: Counter[tuple[str, str]] = Counter()
        self.variants: defaultdict[str, VariantMetrics] = defaultdict(VariantMetrics)
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

    def collect(self) -> Iterator[Metric]:
        """Yield everything but the gauges."""
        yield from self._counters()
        yield self._times("queue_seconds", "Wait for a slot.", lambda of: of.queue)
        yield _histograms(
            "wait_seconds", "Wait for a slot, by tier.", "tier", lambda: list(self.waits.items())
        )
        yield self._times("ttft_seconds", "Time to first token.", lambda of: of.ttft)
        yield self._times("inter_token_seconds", "Gap between chunks.", lambda of: of.gap)
        yield self._times("request_seconds", "Whole request.", lambda of: of.total)

    def _counters(self) -> Iterator[Metric]:
        yield counter(
            "responses",
            "Replies by status.",
            ("status",),
            lambda: [((str(status),), count) for status, count in self.responses.items()],
        )
        yield counter(
            "requests",
            "Requests that reached an engine, by ending.",
            ("endpoint", "outcome"),
            lambda: list(self.endings.items()),
        )
        yield counter(
            "keyed_requests",
            "With an idempotency key, by what came.",
            ("ending",),
            lambda: _by_word(self.keyed),
        )
        yield counter(
            "rate_limited",
            "Refused by a rate limit.",
            ("owner", "measure"),
            lambda: list(self.rate_limited.items()),
        )
        yield counter("tokens", "Tokens metered.", ("variant", "kind"), self._tokens)
        yield counter(
            "cache_hits",
            "Requests with cached input tokens.",
            ("variant",),
            lambda: [((variant,), of.cache_hits) for variant, of in self.variants.items()],
        )
        yield _total("retries", "Second tries before the first byte.", lambda: self.retries)
        yield counter(
            "hedges",
            "Second tries at late first tokens.",
            ("winner",),
            lambda: _by_word(self.hedges),
        )
        yield _total(
            "overstated", "Usage beyond what was asked, cut to it.", lambda: self.overstated
        )
        yield _total(
            "unmetered_hangups",
            "Clients that left an engine before it said any usage.",
            lambda: self.unmetered,
        )

    def _tokens(self) -> Counts:
        for variant, counts in list(self.variants.items()):
            yield (variant, "input"), counts.input_tokens
            yield (variant, "cached_input"), counts.cached_input_tokens
            yield (variant, "output"), counts.output_tokens

    def _times(self, name: str, text: str, of: Callable[[VariantMetrics], Histogram]) -> Metric:
        return _histograms(
            name,
            text,
            "variant",
            lambda: [(variant, of(counts)) for variant, counts in self.variants.items()],
        )


def _histograms(
    name: str, text: str, label: str, read: Callable[[], list[tuple[str, Histogram]]]
) -> Metric:
    name = PREFIX + name

    def samples() -> Iterator[Sample]:
        for value, histogram in read():
            yield from histogram.samples(name, {label: value})

    return family("histogram", name, text, samples)


def _by_word(counts: Counter[str]) -> Counts:
    return [((word,), count) for word, count in counts.items()]


def _total(name: str, text: str, read: Callable[[], int]) -> Metric:
    return counter(name, text, (), lambda: [((), read())])
