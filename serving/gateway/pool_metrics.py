"""What Prometheus is told of the pools: who waits, what is taken, and who was sent away."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from serving.gateway.metrics import Counts, Labels, counter, gauge
from serving.pool.pool import Pool
from serving.pool.replicas import Replica

Read = Callable[[Pool], Sequence[tuple[Labels, float]]]


class PoolMetrics(Collector):
    """Read from the pools at each scrape; labels are ids of ours and tiers."""

    def __init__(self, pools: Callable[[], Mapping[str, Pool]]) -> None:
        self._pools = pools

    def collect(self) -> Iterator[Metric]:
        """Yield every family once."""
        for name, text, labels, read in (
            ("queue_length", "Requests that wait.", ("tier",), _queue_length),
            ("queue_tokens", "Input tokens of those that wait.", ("tier",), _queue_tokens),
            ("slots_share", "Slots that this gateway may take.", (), _of_ready(_share)),
            ("slots_taken", "Slots that it takes.", (), _of_ready(_taken)),
            ("pool_tokens", "Input tokens that wait or run.", (), _pool_tokens),
            ("replicas_slow", "Far slower than their peers.", (), _of_ready(_is_slow)),
            ("prefix_blocks", "Of prompts, remembered of replicas.", (), _of_ready(_prefix_blocks)),
        ):
            yield gauge(name, text, ("deployment", *labels), self._of_each(read))
        yield counter(
            "queue_refusals",
            "Requests that got no slot.",
            ("deployment", "tier", "cause"),
            self._of_each(lambda pool: list(pool.queue.refusals.items())),
        )
        yield counter(
            "routed",
            "Requests by why their replica.",
            ("deployment", "why"),
            self._of_each(lambda pool: [((why,), count) for why, count in pool.choices.items()]),
        )

    def _of_each(self, read: Read) -> Callable[[], Counts]:
        """Return what reads one pool after another, each at one moment."""

        def values() -> Counts:
            for deployment_id, pool in list(self._pools().items()):
                for labels, value in read(pool):
                    yield (deployment_id, *labels), value

        return values


def _queue_length(pool: Pool) -> list[tuple[Labels, float]]:
    return [((tier,), line.requests) for tier, line in pool.queue.lines.items()]


def _queue_tokens(pool: Pool) -> list[tuple[Labels, float]]:
    return [((tier,), line.tokens) for tier, line in pool.queue.lines.items()]


def _pool_tokens(pool: Pool) -> list[tuple[Labels, float]]:
    return [((), pool.pressure.tokens)]


def _of_ready(read: Callable[[Replica], float]) -> Read:
    """Return what sums a figure of a pool's ready replicas."""
    return lambda pool: [((), sum(read(one) for one in pool.replicas.values() if one.is_ready))]


def _share(replica: Replica) -> float:
    return replica.share


def _taken(replica: Replica) -> float:
    return replica.in_flight


def _is_slow(replica: Replica) -> float:
    return replica.slow_until > 0


def _prefix_blocks(replica: Replica) -> float:
    return len(replica.seen)
