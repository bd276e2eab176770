"""The fleet's own metrics, read from the fleet at each scrape."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from serving.feed.follower import FeedFollower
from serving.fleet.engine_counters import CounterReporter
from serving.fleet.reconciler import FleetReconciler
from serving.fleet.slot_shares import SlotAllocator


class FleetCollector(Collector):
    """Turns the fleet and its follower into metric families; ids are ours, never a tenant's."""

    def __init__(
        self,
        fleet: FleetReconciler,
        follower: FeedFollower,
        reporter: CounterReporter,
        shares: SlotAllocator,
    ) -> None:
        self.fleet = fleet
        self.follower = follower
        self.reporter = reporter
        self.shares = shares

    def collect(self) -> Iterator[Metric]:
        """Yield every family once."""
        yield self._replicas()
        yield self._deployments()
        yield self._probe_tokens()
        yield self._load_seconds()
        for name, help_text, counts in (
            ("restarts", "Replicas started after a failure", self.fleet.restart_counts),
            ("ejections", "Replicas ejected for no progress", self.fleet.ejection_counts),
            ("wakes", "Deployments woken by demand", self.fleet.scale_to_zero.wake_counts),
        ):
            yield _by_label(f"penstock_fleet_{name}", help_text, "deployment_id", counts)
        rejected = self.follower.counts.rejected
        yield _by_label("penstock_fleet_feed_rejected", "Bad records kept out", "kind", rejected)
        yield CounterMetricFamily(
            "penstock_fleet_feed_failures",
            "Polls of control that failed",
            value=self.follower.counts.failures,
        )
        yield CounterMetricFamily(
            "penstock_fleet_state_failures",
            "Writes of the fleet's state that the disk did not take",
            value=self.fleet.store.failures,
        )
        yield self._feed_age()
        yield from self._ownership()
        yield from self._samples()
        yield from self._shares()

    def _ownership(self) -> Iterator[Metric]:
        """Whose deployments these are: an alarm where a newer process of the fleet has them."""
        yield GaugeMetricFamily(
            "penstock_fleet_generation",
            "Of this process, granted by control; 0 without one",
            value=self.fleet.generation,
        )
        yield GaugeMetricFamily(
            "penstock_fleet_superseded",
            "1 where a newer process of the fleet has registered",
            value=self.fleet.is_superseded,
        )

    def _replicas(self) -> Metric:
        labels = ("deployment_id", "engine", "state")
        family = GaugeMetricFamily("penstock_fleet_replicas", "Replicas by state", labels=labels)
        counted = Counter(
            (replica.deployment.deployment_id, replica.engine.name, replica.state)
            for replica in self.fleet.replicas.values()
        )
        for values, count in counted.items():
            family.add_metric(values, count)
        return family

    def _deployments(self) -> Metric:
        family = GaugeMetricFamily(
            "penstock_fleet_deployments", "How each stands", labels=("deployment_id", "standing")
        )
        for deployment_id, standing in self.fleet.deployment_states().items():
            family.add_metric((deployment_id, standing), 1)
        return family

    def _probe_tokens(self) -> Metric:
        labels = ("deployment_id", "replica_id", "kind")
        family = CounterMetricFamily(
            "penstock_fleet_probe_tokens", "Tokens of our own test generations", labels=labels
        )
        for replica in self.fleet.replicas.values():
            ids = (replica.deployment.deployment_id, replica.replica_id)
            family.add_metric((*ids, "input"), replica.probes.input_tokens)
            family.add_metric((*ids, "output"), replica.probes.output_tokens)
        return family

    def _load_seconds(self) -> Metric:
        family = GaugeMetricFamily(
            "penstock_fleet_load_seconds", "From start to healthy", labels=("replica_id",)
        )
        for replica in self.fleet.replicas.values():
            if replica.load_seconds is not None:
                family.add_metric((replica.replica_id,), replica.load_seconds)
        return family

    def _samples(self) -> Iterator[Metric]:
        """Samples of engines: an alarm where many wait, or any was dropped."""
        yield GaugeMetricFamily(
            "penstock_fleet_samples_unsent",
            "Samples that billing has not acknowledged",
            value=len(self.fleet.samples),
        )
        for name, help_text, count in (
            ("samples_reported", "Samples acknowledged", self.reporter.reported_count),
            ("samples_dropped", "Samples given up", self.fleet.samples.dropped_count),
            ("samples_failures", "Reports that failed", self.reporter.failure_count),
        ):
            yield CounterMetricFamily(f"penstock_fleet_{name}", help_text, value=count)

    def _shares(self) -> Iterator[Metric]:
        """Gateways and their slots: an alarm where more may be taken than there are."""
        self.shares.forget_silent(time.monotonic())
        yield GaugeMetricFamily(
            "penstock_fleet_gateways", "Heard of lately", value=len(self.shares.gateways)
        )
        labels = ("deployment_id",)
        granted = GaugeMetricFamily("penstock_fleet_slots_granted", "To gateways", labels=labels)
        beyond = GaugeMetricFamily(
            "penstock_fleet_slots_overfilled", "Granted beyond what there are", labels=labels
        )
        for deployment_id, slots in self.fleet.ready_slots().items():
            taken = {replica_id: self.shares.granted(replica_id) for replica_id in slots}
            granted.add_metric((deployment_id,), sum(taken.values()))
            over = sum(max(0, taken[replica_id] - slots[replica_id]) for replica_id in slots)
            beyond.add_metric((deployment_id,), over)
        yield from (granted, beyond)

    def _feed_age(self) -> Metric:
        contact_at = self.follower.contact_at
        age = float("inf") if contact_at is None else time.monotonic() - contact_at
        return GaugeMetricFamily(
            "penstock_fleet_feed_age_seconds", "Since control last answered", value=age
        )


def registry_of(
    fleet: FleetReconciler, follower: FeedFollower, reporter: CounterReporter, shares: SlotAllocator
) -> CollectorRegistry:
    """Return a registry that holds this fleet's metrics."""
    registry = CollectorRegistry()
    registry.register(FleetCollector(fleet, follower, reporter, shares))
    return registry


class _OneFamily:
    """What `generate_latest` takes for a registry."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


async def render(registry: CollectorRegistry) -> bytes:
    """Return the text that `generate_latest` makes of a registry, made of one family at a time:
    other work of the loop goes on in between."""
    parts = []
    for family in registry.collect():
        parts.append(generate_latest(_OneFamily(family)))
        await asyncio.sleep(0)
    return b"".join(parts)


def _by_label(name: str, help_text: str, label: str, counts: Counter[str]) -> Metric:
    family = CounterMetricFamily(name, help_text, labels=(label,))
    for value, count in counts.items():
        family.add_metric((value,), count)
    return family
