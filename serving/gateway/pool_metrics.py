"""What Prometheus is told of the pools: who waits, what is taken, and who was sent away."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from serving.gateway.metrics import PREFIX
from serving.pool.pool import Pool

Family = CounterMetricFamily | GaugeMetricFamily


class PoolMetrics(Collector):
    """Read from the pools at each scrape; labels are ids of ours and tiers."""

    def __init__(self, pools: Callable[[], Mapping[str, Pool]]) -> None:
        self._pools = pools

    def collect(self) -> Iterator[Family]:
        """Yield every family once."""
        tiers = ("deployment", "tier")
        waiting = _gauge("queue_length", "Requests that wait.", tiers)
        tokens = _gauge("queue_tokens", "Input tokens of those that wait.", tiers)
        share = _gauge("slots_share", "Slots that this gateway may take.", ("deployment",))
        taken = _gauge("slots_taken", "Slots that it takes.", ("deployment",))
        held = _gauge("pool_tokens", "Input tokens that wait or run.", ("deployment",))
        slow = _gauge("replicas_slow", "Far slower than their peers.", ("deployment",))
        refusals = CounterMetricFamily(
            PREFIX + "queue_refusals", "Requests that got no slot.", labels=(*tiers, "cause")
        )
        routed = CounterMetricFamily(
            PREFIX + "routed", "Requests by why their replica.", labels=("deployment", "why")
        )
        seen = _gauge("prefix_blocks", "Of prompts, remembered of replicas.", ("deployment",))
        for deployment_id, pool in self._pools().items():
            for tier, line in pool.queue.lines.items():
                waiting.add_metric((deployment_id, tier), line.requests)
                tokens.add_metric((deployment_id, tier), line.tokens)
            replicas = [replica for replica in pool.replicas.values() if replica.is_ready]
            share.add_metric((deployment_id,), sum(replica.share for replica in replicas))
            taken.add_metric((deployment_id,), sum(replica.in_flight for replica in replicas))
            held.add_metric((deployment_id,), pool.pressure.tokens)
            slow.add_metric((deployment_id,), sum(one.slow_until > 0 for one in replicas))
            for (tier, cause), count in pool.queue.refusals.items():
                refusals.add_metric((deployment_id, tier, cause), count)
            for why, count in pool.choices.items():
                routed.add_metric((deployment_id, why), count)
            seen.add_metric((deployment_id,), sum(len(replica.seen) for replica in replicas))
        yield from (waiting, tokens, share, taken, held, slow, refusals, routed, seen)


def _gauge(name: str, text: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, labels=labels)
