"""Which deployments sleep since they had nothing to do for long enough, what wakes them, and what
the feed tells of those that are asleep.

An operator's stop is not sleep, and nothing here undoes it: one that is stopped `may_sleep` no
more.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import structlog

from serving.contract.records import DeploymentRecord
from serving.contract.replica import ReplicaRecord
from serving.engine.adapter import EngineAdapter
from serving.fleet.replica import ManagedReplica
from serving.fleet.replica_feed import ReplicaFeed

log = structlog.get_logger(__name__)


class IdleTracker:
    """`now` is monotonic seconds throughout. A fleet that starts knows who was `asleep`; of all
    others it counts the seconds anew."""

    def __init__(self, asleep: Iterable[str] = ()) -> None:
        self.asleep = set(asleep)
        self._used_at: dict[str, float] = {}
        self._busy_seconds: dict[str, float] = {}

    def note_demand(self, deployment: DeploymentRecord, now: float) -> bool:
        """Somebody waits or is served; tell whether that wakes it."""
        is_woken = deployment.may_sleep and deployment.deployment_id in self.asleep
        self.asleep.discard(deployment.deployment_id)
        self.note_use(deployment, now)
        return is_woken

    def note_use(self, deployment: DeploymentRecord, now: float) -> None:
        """There is a reason to stay awake; none to wake."""
        if deployment.may_sleep and deployment.deployment_id not in self.asleep:
            self._used_at[deployment.deployment_id] = now

    def note_engines(self, deployment: DeploymentRecord, busy_seconds: float, now: float) -> None:
        """Take in how long its engines were busy in all: another figure than before is use that no
        gateway may have told of, as of requests shorter than the time between two reports."""
        if self._busy_seconds.get(deployment.deployment_id) != busy_seconds:
            self.note_use(deployment, now)
            if deployment.may_sleep:
                self._busy_seconds[deployment.deployment_id] = busy_seconds

    def falls_asleep(self, deployment: DeploymentRecord, now: float) -> bool:
        """Have it sleep if it is time to; tell whether it fell asleep just now."""
        id_ = deployment.deployment_id
        if not deployment.may_sleep or id_ in self.asleep:
            return False
        if now - self._used_at.setdefault(id_, now) < deployment.sleep_after_seconds:
            return False
        self.asleep.add(id_)
        return True

    def forget_others(self, deployments: Mapping[str, DeploymentRecord]) -> None:
        """Remember only deployments that are there and may sleep: one that is stopped, or may sleep
        no more, does not begin asleep when it is started."""
        may = {id_ for id_, deployment in deployments.items() if deployment.may_sleep}
        self.asleep &= may
        for known in (self._used_at, self._busy_seconds):
            for id_ in known.keys() - may:
                del known[id_]


def asleep_record(
    deployment: DeploymentRecord, engine: EngineAdapter, load_seconds: float | None, since: datetime
) -> ReplicaRecord:
    """Return what the feed tells of a deployment that sleeps, under its own id: what it will be
    able to do, and how long it takes to be ready."""
    return ReplicaRecord(
        replica_id=deployment.deployment_id,
        deployment_id=deployment.deployment_id,
        url="http://127.0.0.1:0",
        state="asleep",
        slots=deployment.slots,
        started_at=since,
        engine=engine.name,
        capabilities=engine.capabilities(deployment),
        load_seconds=load_seconds,
    )


class ScaleToZero:
    """`load_seconds` are what a deployment's last replica took from start to ready."""

    def __init__(self, feed: ReplicaFeed, engines: Mapping[str, EngineAdapter]) -> None:
        self.idle_tracker = IdleTracker()
        self.load_seconds: dict[str, float] = {}
        self.wake_counts: Counter[str] = Counter()
        self._feed = feed
        self._engines = engines
        self._published: dict[str, DeploymentRecord] = {}

    def restore(self, asleep: Iterable[str], load_seconds: Mapping[str, float]) -> None:
        """Go on from what an earlier fleet knew."""
        self.idle_tracker = IdleTracker(asleep)
        self.load_seconds = dict(load_seconds)

    def is_asleep(self, deployment: DeploymentRecord) -> bool:
        """Tell whether it sleeps."""
        return deployment.deployment_id in self.idle_tracker.asleep

    def note_demand(self, deployment: DeploymentRecord) -> bool:
        """Somebody waits or is served; tell whether that wakes it."""
        is_woken = self.idle_tracker.note_demand(deployment, time.monotonic())
        if is_woken:
            log.info("deployment_wakes", deployment_id=deployment.deployment_id)
            self.wake_counts[deployment.deployment_id] += 1
        return is_woken

    def note_ready(self, deployment: DeploymentRecord, replica: ManagedReplica) -> None:
        """One of its replicas is ready, which is a reason to stay awake."""
        if replica.took_seconds is not None:
            self.load_seconds[deployment.deployment_id] = replica.took_seconds
        self.idle_tracker.note_use(deployment, time.monotonic())

    def review(
        self, deployment: DeploymentRecord, own: Iterable[ManagedReplica], *, is_failing: bool
    ) -> bool:
        """Have a deployment sleep that nobody needs; tell whether it fell asleep just now. One that
        loads is used: it wakes for somebody, who may come back; one that fails is not."""
        if not deployment.may_sleep:
            return False
        own, now = list(own), time.monotonic()
        self.idle_tracker.note_engines(deployment, sum(r.counted.busy_seconds for r in own), now)
        is_coming = any(r.state != "ready" and not r.is_leaving and not r.no_room for r in own)
        if is_coming and not is_failing:
            self.idle_tracker.note_use(deployment, now)
        falls_asleep = self.idle_tracker.falls_asleep(deployment, now)
        if falls_asleep:
            log.info("deployment_sleeps", deployment_id=deployment.deployment_id)
        return falls_asleep

    def forget_others(self, deployments: Mapping[str, DeploymentRecord]) -> None:
        """Remember only deployments that are there."""
        self.idle_tracker.forget_others(deployments)
        for id_ in self.load_seconds.keys() - deployments.keys():
            del self.load_seconds[id_]

    def publish(self, deployments: Mapping[str, DeploymentRecord]) -> None:
        """Have the feed say who sleeps; who wakes is told of by its replicas first."""
        asleep = {id_: deployments[id_] for id_ in self.idle_tracker.asleep}
        for id_ in self._published.keys() - asleep.keys():
            self._feed.remove(id_)
        for id_, one in asleep.items():
            if self._published.get(id_) != one:
                engine, took = self._engines[one.engine], self.load_seconds.get(id_)
                self._feed.publish(asleep_record(one, engine, took, datetime.now(UTC)))
        self._published = asleep
