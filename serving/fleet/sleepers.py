"""A fleet's deployments that may sleep: whether each does, how long it takes to load, and what the
feed tells of those that are asleep."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import structlog

from serving.contract.records import DeploymentRecord
from serving.engine.adapter import EngineAdapter
from serving.fleet.feed import ReplicaFeed
from serving.fleet.replica import Replica
from serving.fleet.sleep import Sleep, asleep_record

log = structlog.get_logger(__name__)


class Sleepers:
    """`load_seconds` are what a deployment's last replica took from start to ready."""

    def __init__(self, feed: ReplicaFeed, engines: Mapping[str, EngineAdapter]) -> None:
        self.sleep = Sleep()
        self.load_seconds: dict[str, float] = {}
        self.wake_counts: Counter[str] = Counter()
        self._feed = feed
        self._engines = engines
        self._told: dict[str, DeploymentRecord] = {}

    def restore(self, asleep: Iterable[str], load_seconds: Mapping[str, float]) -> None:
        """Go on from what an earlier fleet knew."""
        self.sleep = Sleep(asleep)
        self.load_seconds = dict(load_seconds)

    def is_asleep(self, deployment: DeploymentRecord) -> bool:
        """Tell whether it sleeps."""
        return deployment.deployment_id in self.sleep.asleep

    def note_demand(self, deployment: DeploymentRecord) -> bool:
        """Somebody waits or is served; tell whether that wakes it."""
        is_woken = self.sleep.note_demand(deployment, time.monotonic())
        if is_woken:
            log.info("deployment_wakes", deployment_id=deployment.deployment_id)
            self.wake_counts[deployment.deployment_id] += 1
        return is_woken

    def note_ready(self, deployment: DeploymentRecord, replica: Replica) -> None:
        """One of its replicas is ready, which is a reason to stay awake."""
        if replica.took_seconds is not None:
            self.load_seconds[deployment.deployment_id] = replica.took_seconds
        self.sleep.note_use(deployment, time.monotonic())

    def review(
        self, deployment: DeploymentRecord, own: Iterable[Replica], *, is_failing: bool
    ) -> bool:
        """Have a deployment sleep that nobody needs; tell whether it fell asleep just now. One that
        loads is used: it wakes for somebody, who may come back; one that fails is not."""
        if not deployment.may_sleep:
            return False
        own, now = list(own), time.monotonic()
        self.sleep.note_engines(deployment, sum(r.counted.busy_seconds for r in own), now)
        is_coming = any(r.state != "ready" and not r.is_leaving for r in own)
        if is_coming and not is_failing:
            self.sleep.note_use(deployment, now)
        falls_asleep = self.sleep.review(deployment, now)
        if falls_asleep:
            log.info("deployment_sleeps", deployment_id=deployment.deployment_id)
        return falls_asleep

    def forget_others(self, deployments: Mapping[str, DeploymentRecord]) -> None:
        """Remember only deployments that are there."""
        self.sleep.forget_others(deployments)
        for id_ in self.load_seconds.keys() - deployments.keys():
            del self.load_seconds[id_]

    def tell(self, deployments: Mapping[str, DeploymentRecord]) -> None:
        """Have the feed say who sleeps; who wakes is told of by its replicas first."""
        asleep = {id_: deployments[id_] for id_ in self.sleep.asleep}
        for id_ in self._told.keys() - asleep.keys():
            self._feed.remove(id_)
        for id_, one in asleep.items():
            if self._told.get(id_) != one:
                engine, took = self._engines[one.engine], self.load_seconds.get(id_)
                self._feed.publish(asleep_record(one, engine, took, datetime.now(UTC)))
        self._told = asleep
