"""The operator's listener: is it alive, is it ready, and its metrics."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from serving.gateway.gateway import Gateway
from serving.gateway.http.response import Exchange
from serving.gateway.metrics import Counts, Labels, counter, gauge
from serving.pool.pool import Pool
from serving.pool.replicas import Replica

Read = Callable[[Pool], Sequence[tuple[Labels, float]]]


class PoolCollector(Collector):
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
            ("kv_tokens", "Of KV caches, expected of what runs.", (), _of_ready(_kv)),
            ("kv_tokens_share", "Of KV caches, for its slots.", (), _of_ready(_kv_share)),
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
    return [((tier,), line.requests) for tier, line in pool.queue.tier_queues.items()]


def _queue_tokens(pool: Pool) -> list[tuple[Labels, float]]:
    return [((tier,), line.tokens) for tier, line in pool.queue.tier_queues.items()]


def _pool_tokens(pool: Pool) -> list[tuple[Labels, float]]:
    return [((), pool.load_shedder.tokens)]


def _of_ready(read: Callable[[Replica], float]) -> Read:
    """Return what sums a figure of a pool's ready replicas."""
    return lambda pool: [((), sum(read(one) for one in pool.replicas.values() if one.is_ready))]


def _share(replica: Replica) -> float:
    return replica.share


def _taken(replica: Replica) -> float:
    return replica.in_flight


def _kv(replica: Replica) -> float:
    return replica.kv.tokens


def _kv_share(replica: Replica) -> float:
    return replica.kv_tokens_max


def _is_slow(replica: Replica) -> float:
    return replica.slow_until > 0


def _prefix_blocks(replica: Replica) -> float:
    return len(replica.prefix_history)


def add_gauges(gateway: Gateway) -> None:
    """Have metrics show how a gateway stands."""
    gauge = gateway.metrics.gauge
    gauge("in_flight", "Requests under way.", lambda: gateway.app.in_flight)
    lines = gateway.connections
    gauge("connections", "Of clients.", lambda: len(lines))
    gauge("connections_refused", "There was no room.", lambda: lines.refused)
    gauge("connections_closed_idle", "To make room.", lambda: lines.closed_idle)
    gauge("requests_unreadable", "No HTTP, or too much of it.", lambda: lines.unreadable)
    gauge("tokens_under_way", "That wait or run, input.", lambda: gateway.pressure.tokens)
    gauge("body_bytes", "Of requests under way.", lambda: gateway.app.inference.body_memory.held)
    gauge("unread_bytes", "Kept for slow clients.", lambda: gateway.app.write_memory.total_bytes)
    gauge("memory_limit_bytes", "By cgroup or machine.", lambda: gateway.memory_limit_bytes)
    gauge("lingering", "Of these, left by their clients.", lambda: gateway.disconnect_drain.total)
    _add_gauges_of_feeds(gateway)
    _add_gauges_of_books(gateway)
    _add_gauges_of_others(gateway)


def _add_gauges_of_feeds(gateway: Gateway) -> None:
    gauge = gateway.metrics.gauge
    gauge("feed_age_seconds", "Since control answered.", lambda: gateway.control_feed.age_seconds)
    gauge(
        "replica_feed_age_seconds",
        "Since the fleet answered that has been silent for longest.",
        lambda: max(fleet.replica_feed.age_seconds for fleet in gateway.fleets.values()),
    )
    gauge(
        "state_save_failures",
        "In a row, of what control's feed said.",
        lambda: gateway.control_feed.state_writer.failures,
    )
    gauge(
        "feed_rejected",
        "Records that did not validate.",
        gateway.control_feed.follower.counts.rejected.total,
    )


def _add_gauges_of_books(gateway: Gateway) -> None:
    gauge, counts = gateway.metrics.gauge, gateway.shipper.counts
    gauge("journal_rows", "Events not acknowledged.", lambda: gateway.journal.unacknowledged_count)
    gauge("lease_nanos", "Granted and not yet returned.", gateway.poll.granted_nanos)
    gauge("leases", "Leases not yet closed.", lambda: len(gateway.poll.leases))
    gauge("deferred_asks", "Asks put off by billing.", lambda: gateway.poll.counts.deferred)
    gauge("lineage_changes", "Restored databases met.", lambda: gateway.lineage.changes)
    gauge("held_nanos", "Held by requests under way.", gateway.lease_manager.held_nanos)
    gauge("shipped_events", "Events acknowledged.", lambda: counts.shipped)
    gauge("shipment_failures", "Batches not acknowledged.", lambda: counts.failures)
    orphans = gateway.orphans
    gauge(
        "orphan_events",
        "Shipped for dead gateways of this host.",
        lambda: 0 if orphans is None else orphans.shipped,
    )
    gauge("sent_again_events", "Events a new database got.", lambda: counts.sent_again)
    gauge(
        "clock_skew_seconds",
        "By how much this host's clock is ahead of control's.",
        lambda: gateway.clock.skew_seconds,
    )
    gauge("clock_ahead", "Calls refused for our clock.", lambda: gateway.api.clock_ahead_count)
    gauge("journal_damages", "Files set aside.", lambda: len(gateway.journal.damages))
    gauge("journal_unreadable_rows", "Rows set aside.", lambda: gateway.journal.unreadable_rows)
    gauge("kept_bytes", "Acknowledged events kept.", lambda: gateway.journal.kept_bytes)
    gauge("dead_letters", "Events billing could not book.", lambda: counts.dead_lettered)


def _add_gauges_of_others(gateway: Gateway) -> None:
    gauge = gateway.metrics.gauge
    gauge(
        "share_failures",
        "Of asking a fleet for slots, in a row.",
        lambda: max(fleet.demand.failures for fleet in gateway.fleets.values()),
    )
    gauge("gateways_sharing_slots", "By the fleets.", lambda: gateway.gateways_sharing_slots)
    gauge("grammars_unchecked", "Not compiled ahead.", lambda: gateway.grammars.unchecked_count)
    gauge("grammars_unknown", "Refused: not checked.", lambda: gateway.grammars.unknown_count)
    parse_offload = gateway.parse_offload
    gauge("preparers_lost", "Processes killed.", lambda: parse_offload.pool.lost_count)
    gauge("bodies_refused", "Too many waited to be read.", lambda: parse_offload.rejected)
    gauge(
        "bodies_refused_own",
        "Too many of the organization's own waited to be read.",
        lambda: parse_offload.rejected_own,
    )
    render_offload = gateway.render_offload
    gauge("finishers_lost", "Processes killed.", lambda: render_offload.pool.lost_count)
    gauge("answers_unfinished", "Made here, for want of one.", lambda: render_offload.unfinished)
    gauge("keyed_endings_untold", "To control.", lambda: gateway.claims.unsent_count)
    line = gateway.limiter.backend
    gauge(
        "limits_apart",
        "Whether rate limits are held by this gateway's part, without Redis.",
        lambda: not line.is_open,
    )
    gauge("limits_calls", "Calls to Redis for rate limits.", lambda: line.calls)
    gauge("limits_failures", "Of these, without an answer in time.", lambda: line.failures)
    gauge(
        "gateways_sharing_limits",
        "As control or the fleet counts them, whichever more.",
        gateway.live_gateway_count,
    )
    news = gateway.prefix_news
    gauge("prefixes_told", "Prompts, to other gateways.", lambda: news.sent)
    gauge("prefixes_untold", "Of which nobody heard.", lambda: news.dropped)
    gauge("prefixes_heard", "From other gateways.", lambda: news.received)


TEXT = b"text/plain; charset=utf-8"
FEW_CONNECTIONS = 1_024
STEP_SECONDS = 0.001
"""After which the writing of metrics lets requests go on."""
ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class OperatorApp:
    """Answers `/healthz`, `/readyz` and `/metrics` for a gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        gateway.metrics.registry.register(PoolCollector(lambda: gateway.directory.pools))
        add_gauges(gateway)

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one request."""
        if exchange.path == "/metrics":
            status, kind, body = 200, CONTENT_TYPE_LATEST.encode(), await self.metrics()
        else:
            status, kind, body = self._answer(exchange.path)
        exchange.start(status, [(b"content-type", kind), (b"content-length", b"%d" % len(body))])
        exchange.end(body)

    async def metrics(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return await exposition(self._gateway.metrics.registry)

    def _answer(self, path: str) -> tuple[int, bytes, bytes]:
        if path == "/healthz":
            return 200, TEXT, b"ok\n"
        if path == "/readyz":
            problem = readiness_problem(self._gateway)
            lines = [problem or "ready", *warnings(self._gateway), ""]
            return (503 if problem else 200), TEXT, "\n".join(lines).encode()
        return 404, TEXT, b"not found\n"


async def exposition(registry: CollectorRegistry) -> bytes:
    """Return all metrics in Prometheus's text format.

    The event loop is held for STEP_SECONDS at a time: samples that are made as they are read
    may differ by what happens in between.
    """
    pieces, lines, began = list[bytes](), list[str](), time.perf_counter()
    for family in registry.collect():
        name = family.name + "_total" if family.type == "counter" else family.name
        lines.append(f"# HELP {name} {family.documentation}\n# TYPE {name} {family.type}\n")
        for sample in family.samples:
            lines.append(_line(sample))
            if time.perf_counter() - began > STEP_SECONDS:
                pieces.append("".join(lines).encode())
                lines.clear()
                await asyncio.sleep(0)
                began = time.perf_counter()
    return b"".join([*pieces, "".join(lines).encode()])


def readiness_problem(gateway: Gateway) -> str:
    """Return what keeps a gateway from taking new clients, or nothing."""
    if gateway.is_draining:
        return "draining"
    if ended := gateway.ended_tasks():
        return f"background task ended: {', '.join(ended)}"
    if not gateway.is_listening():
        return "not listening yet"
    if not gateway.control_feed.is_fresh:
        return "no contact with control"
    if gateway.poll.has_never_been_answered:
        return "billing grants no leases"
    return "" if gateway.journal.healthy else "journal unavailable"


def warnings(gateway: Gateway) -> list[str]:
    """Return what an operator should know though the gateway goes on."""
    found = [str(damage) for damage in gateway.journal.damages]
    if unknown := sorted(gateway.directory.fleet_ids() - gateway.fleets.keys()):
        found.append(f"deployments of {', '.join(unknown)}, not named in PENSTOCK_FLEET_URL")
    if gateway.control_feed.state_writer.failures:
        found.append("the state of control's feed cannot be saved")
    if (remark := gateway.limiter.warning) is not None:
        found.append(remark)
    if gateway.clock.is_set_by_control:
        skew = f"{gateway.clock.skew_seconds:+.0f} s"
        found.append(f"this host's clock is {skew} off; control's time is taken")
    if gateway.connections.most < FEW_CONNECTIONS:
        room = f"only {gateway.connections.most} clients may be connected"
        found.append(f"{room}: raise the limit of open files (ulimit -Hn)")
    return found


def _line(sample: Sample) -> str:
    value = floatToGoString(sample.value)  # type: ignore[no-untyped-call]
    if not sample.labels:
        return f"{sample.name} {value}\n"
    items = sorted(sample.labels.items())
    labels = ",".join([f'{name}="{text.translate(ESCAPES)}"' for name, text in items])
    return f"{sample.name}{{{labels}}} {value}\n"
