"""Reconciles what deployments ask for with the replicas there are, for as long as this life of the
fleet owns them."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Literal, Never

import aiohttp
import structlog

from serving.contract.deployment_plan import DeploymentPlans
from serving.contract.fleet import feed_lineage
from serving.contract.ids import new_id
from serving.contract.records import DeploymentRecord
from serving.contract.slot_shares import EngineLoad
from serving.engine.adapter import EngineAdapter
from serving.feed.changes import ChangeBatch
from serving.feed.mirror import FeedMirror, RecordTable
from serving.fleet.command_checks import CommandChecks
from serving.fleet.config import FleetConfig
from serving.fleet.engine_counters import CounterSamples
from serving.fleet.engine_process import LogFile
from serving.fleet.launcher import Launcher, RestartBackoff, StartupLimiter, loads_at_once
from serving.fleet.lifecycle import ReplicaLifecycle
from serving.fleet.local_launcher import LocalLauncher
from serving.fleet.placement import Placement
from serving.fleet.replica import NO_LOAD, FleetServices, ManagedReplica, StoredReplica
from serving.fleet.replica_feed import ReplicaFeed, is_same_news
from serving.fleet.rollout import is_current, least_useful, make_room
from serving.fleet.scale_to_zero import ScaleToZero
from serving.fleet.state_store import FleetStore, StoredFleet

log = structlog.get_logger(__name__)


def desired_endpoints(deployment: DeploymentRecord) -> Counter[str]:
    """Return how many replicas are wanted at each endpoint: an external URL, or here ("").

    For now as many as `replicas_min`; 0 stops the deployment.
    """
    if deployment.replicas_min == 0:
        return Counter()
    if deployment.engine == "external":
        return Counter(set(deployment.external_urls))
    return Counter({"": deployment.replicas_min})


Standing = Literal["stopped", "asleep", "loading", "ready"]
"""stopped: by an operator; asleep: until there is demand; loading: none is ready, though wanted."""
REFUSED_SECONDS = 300.0
"""Between two starts of a deployment that would not run here."""
ENDED_KEPT_MAX = 3
"""Stopped and failed replicas of one deployment that stay in the feed."""


class FleetReconciler:
    """All replicas of this fleet and the deployments they are for."""

    def __init__(
        self,
        config: FleetConfig,
        engines: Mapping[str, EngineAdapter],
        store: FleetStore,
        session: aiohttp.ClientSession,
        launcher: Launcher | None = None,
    ) -> None:
        self.config = config
        self.engines = engines
        self.store = store
        self.samples = CounterSamples(store.directory / "samples.json", store.disk)
        self.feed = ReplicaFeed(version=time.time_ns() // 1_000_000, lineage=new_id())
        self.generation = 0
        """Of this life; 0 until it owns the deployments, and states nothing."""
        self.is_superseded = False
        """Whether a newer life owns them: this one starts nothing and ends nothing."""
        self.confirm: Callable[[], Awaitable[bool]] | None = None
        """Asks control whether that is so; None where nobody is asked."""
        self.replicas: dict[str, ManagedReplica] = {}
        self.restarts: dict[str, RestartBackoff] = {}
        self.refused: dict[str, float] = {}
        """The deployments whose last start was refused, and until when, in monotonic seconds, none
        is tried unless they change: what was missing may come, as a disk that is mounted late."""
        self.restart_counts: Counter[str] = Counter()
        self.ejection_counts: Counter[str] = Counter()
        self.scale_to_zero = ScaleToZero(self.feed, engines)
        self.is_informed = False
        self.is_closing = False
        self._records = RecordTable[DeploymentRecord]()
        self._mirror = FeedMirror({"deployment": self._records})
        self._deployments: dict[str, DeploymentRecord] = {}
        self._lifecycles: dict[str, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self.launcher = launcher or LocalLauncher(config)
        self.placement = Placement(
            *(self.replicas.values, engines),
            count_max=config.replica_count_max,
            is_local=config.launcher == "local",
        )
        self._command_checks = CommandChecks(config.weights_roots)
        self._services = FleetServices(
            config.timings,
            StartupLimiter(loads_at_once()),
            session,
            self.launcher,
            config.tokens,
            self._changed,
            self._save,
            self._saved,
            self.placement.place,
            self._command_checks.check,
        )

    def own(self, generation: int) -> None:
        """State replicas from now on, as the life of a generation."""
        self.generation = generation
        self.feed.lineage = feed_lineage(generation, new_id())

    def stand_down(self) -> None:
        """Leave all replicas as they are: a newer life owns the deployments. Those who follow the
        feed are answered, so that they look for the newer one."""
        if self.is_superseded:
            return
        self.is_superseded = True
        for task in self._lifecycles.values():
            task.cancel()
        self.feed.wake()
        running = [one.replica_id for one in self._live_replicas() if one.handle is not None]
        log.error("fleet_stands_down", generation=self.generation, left_running=running)

    def adopt(self, stored: StoredFleet) -> list[ManagedReplica]:
        """Take over living replicas of an earlier life, and what was wanted of it; return the
        ones that are of no use any more."""
        self._deployments = {record.deployment_id: record for record in stored.deployments}
        self.is_informed = bool(stored.deployments)
        self.scale_to_zero.restore(stored.asleep, stored.load_seconds)
        self.scale_to_zero.forget_others(self._deployments)
        left = [one for entry in stored.replicas if (one := self._adopt(entry)) is not None]
        self.store.forget_other_replicas(self.replicas)
        self.scale_to_zero.publish(self._deployments)
        self._save()
        return left

    def deployment(self, deployment_id: str) -> DeploymentRecord | None:
        """Return a deployment as control wants it now."""
        return self._deployments.get(deployment_id)

    def deployments(self) -> Iterable[DeploymentRecord]:
        """Return all deployments as control wants them now."""
        return self._deployments.values()

    def deployment_states(self) -> dict[str, Standing]:
        """Return how each deployment stands."""
        ready = self.ready_slots()
        return {
            id_: self._deployment_state(one, id_ in ready) for id_, one in self._deployments.items()
        }

    def ready_slots(self) -> dict[str, dict[str, int]]:
        """Return, by deployment, the slots of each replica that may be given work."""
        slots: dict[str, dict[str, int]] = {}
        for replica in self.replicas.values():
            if replica.state == "ready":
                deployment = replica.deployment
                slots.setdefault(deployment.deployment_id, {})[replica.replica_id] = (
                    deployment.slots
                )
        return slots

    def gateway_tokens(self) -> dict[str, str]:
        """Return what gateways show the node of each replica that has one."""
        return {id_: replica.gateway_token for id_, replica in self.replicas.items()}

    def reserved_share(self, deployment_id: str) -> float:
        """Return which part of a deployment's slots is kept free of `batch` for each urgent tier in
        use; 0 for a deployment that control does not want."""
        deployment = self._deployments.get(deployment_id)
        return 0.0 if deployment is None else deployment.reserved_share

    def engine_loads(self, replica_ids: Iterable[str]) -> dict[str, EngineLoad]:
        """Return how full the engines of some replicas are, of those that are at all."""
        found = {id_: self.replicas[id_].engine_load for id_ in replica_ids if id_ in self.replicas}
        return {id_: strain for id_, strain in found.items() if strain != NO_LOAD}

    def apply(self, batch: ChangeBatch) -> None:
        """Take in news of deployments from control, and act on them once they are whole."""
        self._mirror.apply(batch)
        if not batch.is_last:
            return
        before = self._deployments
        own = (each for each in self._records.all() if each.fleet_id == self.config.fleet_id)
        self._deployments = {each.deployment_id: each for each in own}
        self.is_informed = True
        for deployment_id, record in self._deployments.items():
            if before.get(deployment_id) != record:
                self._note_change(record)
        self.refused = {id_: self.refused[id_] for id_ in self.refused.keys() & self._deployments}
        self.scale_to_zero.forget_others(self._deployments)
        self._save()
        self._wake.set()

    async def plans(self) -> DeploymentPlans:
        """Return what each deployment needs, and how its replicas would be replaced."""
        return await self.placement.plans(
            [*self._deployments.values()], self.scale_to_zero.load_seconds
        )

    def note_demand(self, deployment_ids: Iterable[str]) -> None:
        """Wake what sleeps where somebody waits, and have awake what is used."""
        if not self._may_act:
            return
        for deployment_id in deployment_ids:
            deployment = self._deployments.get(deployment_id)
            if deployment is not None and self.scale_to_zero.note_demand(deployment):
                self._wake_up(deployment)

    async def reconcile_forever(self) -> None:
        """Keep actual at desired, woken by news and at least every second."""
        while True:
            if self.is_informed and self._may_act:
                self.reconcile()
            if self.store.is_behind:
                self._save()
            self._forget_ended()
            try:
                # Not wait_for: before Python 3.12 it may forget that it was cancelled.
                async with asyncio.timeout(self.config.timings.poll_seconds):
                    await self._wake.wait()
            except TimeoutError:
                continue
            self._wake.clear()

    def reconcile(self) -> None:
        """Start what is missing, let go what is too much or out of date."""
        own = defaultdict[str, list[ManagedReplica]](list)
        for replica in self._live_replicas():
            own[replica.deployment.deployment_id].append(replica)
        for id_, deployment in self._deployments.items():
            if deployment.replicas_min or id_ in own:
                self._reconcile(deployment, own[id_])
        self.scale_to_zero.publish(self._deployments)
        for replica in self._live_replicas():
            if replica.deployment.deployment_id not in self._deployments:
                replica.drain()

    async def sample_forever(self) -> Never:
        """Take samples at each full minute (`sample_seconds`) of the wall clock."""
        seconds = self.config.timings.sample_seconds
        while True:
            await asyncio.sleep(seconds - time.time() % seconds)
            if self._may_act:
                self.sample()

    def sample(self) -> None:
        """Keep a sample of what every living replica's engine counted, and go on from there."""
        self._save()
        self.samples.sample(self._live_replicas())

    async def close(self) -> None:
        """Leave all replicas for adoption, or stop each in order if so configured and they are
        ours."""
        may_end, self.is_closing = self._may_act, True
        if may_end and not self.config.keep_replicas:
            for replica in self._live_replicas():
                replica.drain_seconds = self.config.timings.drain_seconds
                replica.drain()
            await asyncio.gather(*self._lifecycles.values(), return_exceptions=True)
        for task in self._lifecycles.values():
            task.cancel()
        await asyncio.gather(*self._lifecycles.values(), return_exceptions=True)
        await self._command_checks.close()
        await self.launcher.close()
        if may_end:
            self.sample()

    async def may_end(self) -> bool:
        """Tell whether this life may end what it does not know: no newer one owns the fleet."""
        return self._may_act and (self.confirm is None or await self.confirm())

    @property
    def _may_act(self) -> bool:
        return self.generation > 0 and not self.is_superseded and not self.is_closing

    def _reconcile(self, deployment: DeploymentRecord, own: list[ManagedReplica]) -> None:
        is_failing = self._restarts_of(deployment).consecutive_failures > 0
        if self.scale_to_zero.review(deployment, own, is_failing=is_failing):
            self._save()
        is_asleep = self.scale_to_zero.is_asleep(deployment)
        wanted = Counter[str]() if is_asleep else desired_endpoints(deployment)
        staying = [r for r in own if not r.is_leaving]
        current = [r for r in staying if is_current(r, deployment, wanted)]
        held = Counter(replica.endpoint for replica in current)
        # One that wakes needs the memory of those that are ending.
        waits = not current and deployment.may_sleep and any(r.is_stopping for r in own)
        is_refused = time.monotonic() < self.refused.get(deployment.deployment_id, 0.0)
        if not waits and not is_refused:
            for place in (wanted - held).elements():
                self._start(deployment, place)
        for place, surplus in (held - wanted).items():
            for replica in least_useful([r for r in current if r.endpoint == place])[:surplus]:
                replica.drain()
        outdated = [r for r in staying if r not in current]
        self._retire(outdated, current, wanted)
        id_ = deployment.deployment_id
        ends = [
            r.ended_at or 0.0 for r in self.replicas.values() if r.deployment.deployment_id == id_
        ]
        seconds = self.scale_to_zero.load_seconds.get(id_)
        make_room(deployment, own, outdated, seconds, max(ends, default=0.0))

    def _retire(
        self, outdated: list[ManagedReplica], current: list[ManagedReplica], wanted: Counter[str]
    ) -> None:
        """Let outdated replicas go: ready ones once their successors are ready too."""
        is_succeeded = sum(replica.state == "ready" for replica in current) >= wanted.total()
        for replica in outdated:
            if is_succeeded or replica.state != "ready":
                replica.drain()

    def _note_change(self, deployment: DeploymentRecord) -> None:
        """Forget what failed before a deployment was changed; requests that began before keep the
        longer of both times."""
        self.refused.pop(deployment.deployment_id, None)
        if deployment.deployment_id in self.restarts:
            self.restarts[deployment.deployment_id].reset()
        for replica in self._replicas_of(deployment):
            self._note_timeouts(replica)

    def _note_timeouts(self, replica: ManagedReplica) -> None:
        latest = self._deployments.get(replica.deployment.deployment_id, replica.deployment)
        replica.drain_seconds = max(replica.drain_seconds, latest.timeouts.total_seconds)

    def _wake_up(self, deployment: DeploymentRecord) -> None:
        """Call back those that only drain; the rest is started."""
        wanted = desired_endpoints(deployment)
        for replica in self._replicas_of(deployment):
            if is_current(replica, deployment, wanted):
                replica.resume()
        self._save()
        self._wake.set()

    def _start(self, deployment: DeploymentRecord, endpoint: str) -> None:
        now = time.monotonic()
        restarts = self._restarts_of(deployment)
        pause = restarts.pause_seconds(now)
        if restarts.consecutive_failures:
            self.restart_counts[deployment.deployment_id] += 1
        restarts.record_start(now + pause)
        self._add(self._make_replica(new_id(), deployment, endpoint, pause_seconds=pause))

    def _add(self, replica: ManagedReplica) -> None:
        self.replicas[replica.replica_id] = replica
        self.feed.publish(replica.record)
        task = asyncio.get_running_loop().create_task(ReplicaLifecycle(replica).run())
        self._lifecycles[replica.replica_id] = task
        task.add_done_callback(lambda done: self._lifecycle_ended(replica, done))

    def _lifecycle_ended(self, replica: ManagedReplica, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("replica_life_broke", replica_id=replica.replica_id, exc_info=error)
            replica.end(at_once=True)
            replica.ended_at = time.monotonic()
            replica.set_state("failed", reason=f"the fleet's own fault: {type(error).__name__}")
        self._wake.set()

    def _adopt(self, stored: StoredReplica) -> ManagedReplica | None:
        """Take over a replica; return it if it is no longer of use."""
        replica = self._make_replica(stored.replica_id, stored.deployment, stored.url)
        if replica.restore(stored) and not replica.is_over:
            log.info("replica_adopted", replica_id=replica.replica_id, state=replica.state)
            self._add(replica)
            return None
        return replica

    def _make_replica(
        self,
        replica_id: str,
        deployment: DeploymentRecord,
        endpoint: str,
        *,
        pause_seconds: float = 0.0,
    ) -> ManagedReplica:
        replica = ManagedReplica(
            replica_id,
            deployment,
            self.engines[deployment.engine],
            LogFile(self.store.log_path(replica_id)),
            self._services,
            endpoint=endpoint,
            pause_seconds=pause_seconds,
            load_seconds_before=self.scale_to_zero.load_seconds.get(deployment.deployment_id),
        )
        self._note_timeouts(replica)
        return replica

    def _changed(self, replica: ManagedReplica) -> None:
        """Publish a replica's news; its seconds of loading and its probes wake nobody."""
        record, known = replica.record, self.feed.record_of(replica.replica_id)
        if known is not None and is_same_news(record, known):
            self.feed.refresh(record)
            return
        self.feed.publish(record)
        if replica.is_over:
            self.samples.sample_last(replica)
        if replica.state == "failed":
            self._note_failure(replica)
        if replica.state == "ready":
            self._note_ready(replica)
        self._save()
        self._wake.set()

    def _note_ready(self, replica: ManagedReplica) -> None:
        deployment = self._deployments.get(replica.deployment.deployment_id)
        if deployment is not None:
            self.scale_to_zero.note_ready(deployment, replica)

    def _note_failure(self, replica: ManagedReplica) -> None:
        if replica.was_refused:
            until = time.monotonic() + REFUSED_SECONDS
            self.refused[replica.deployment.deployment_id] = until
            return
        now = time.monotonic()
        steady = self.config.timings.steady_seconds
        was_steady = replica.ready_since is not None and now - replica.ready_since >= steady
        self._restarts_of(replica.deployment).record_failure(now, was_steady=was_steady)
        if replica.was_stuck:
            self.ejection_counts[replica.deployment.deployment_id] += 1

    def _forget_ended(self) -> None:
        """Drop ended replicas from the feed: the old ones, and all but the last few."""
        oldest = time.monotonic() - self.config.timings.ended_kept_seconds
        kept: Counter[str] = Counter()
        for replica in sorted(
            self._ended_replicas(), key=lambda r: r.ended_at or 0.0, reverse=True
        ):
            kept[replica.deployment.deployment_id] += 1
            is_told = replica.was_refused and replica.deployment.deployment_id in self.refused
            is_old = (replica.ended_at or 0.0) < oldest and not is_told
            if is_old or kept[replica.deployment.deployment_id] > ENDED_KEPT_MAX:
                self._forget(replica)

    def _forget(self, replica: ManagedReplica) -> None:
        del self.replicas[replica.replica_id]
        del self._lifecycles[replica.replica_id]
        self.feed.remove(replica.replica_id)
        self.store.forget_replica(replica.replica_id)
        replica.log_file.remove()

    def _deployment_state(self, deployment: DeploymentRecord, is_ready: bool) -> Standing:
        if not deployment.replicas_min:
            return "stopped"
        if self.scale_to_zero.is_asleep(deployment):
            return "asleep"
        return "ready" if is_ready else "loading"

    def _replicas_of(self, deployment: DeploymentRecord) -> list[ManagedReplica]:
        id_ = deployment.deployment_id
        return [one for one in self._live_replicas() if one.deployment.deployment_id == id_]

    def _live_replicas(self) -> list[ManagedReplica]:
        return [replica for replica in self.replicas.values() if not replica.is_over]

    def _ended_replicas(self) -> list[ManagedReplica]:
        return [
            replica
            for replica in self.replicas.values()
            if replica.is_over and self._lifecycles[replica.replica_id].done()
        ]

    def _restarts_of(self, deployment: DeploymentRecord) -> RestartBackoff:
        timings = self.config.timings
        fresh = RestartBackoff(
            first_seconds=timings.backoff_first_seconds, max_seconds=timings.backoff_max_seconds
        )
        return self.restarts.setdefault(deployment.deployment_id, fresh)

    def _save(self) -> Future[bool]:
        """Remember all that may still run; a group being killed counts. What the disk does not take
        is tried again each second."""
        unfinished = [replica.stored for replica in self.replicas.values() if not replica.is_gone]
        deployments = tuple(self._deployments.values())
        return self.store.save(
            StoredFleet(
                *(tuple(unfinished), deployments),
                asleep=tuple(sorted(self.scale_to_zero.idle_tracker.asleep)),
                load_seconds=self.scale_to_zero.load_seconds,
            )
        )

    async def _saved(self, replica: ManagedReplica) -> bool:
        """Remember them, and what this one is adopted from without them, before it is started; tell
        whether the disk took both. Where a newer life owns the deployment, nothing comes of it."""
        if self.confirm is not None and not await self.confirm():
            self.stand_down()
            await asyncio.Event().wait()  # until cancelled, as all of our replicas' tasks are
        written = (self.store.put_replica(replica.stored), self._save())
        # Who stops waiting must not have what others count on written no more.
        return all(await asyncio.shield(asyncio.gather(*map(asyncio.wrap_future, written))))
