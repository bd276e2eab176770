"""One replica as data: its state, its engine's process, what its engine counted, and how all of it
is told and stored."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import aiohttp
import msgspec
import structlog

from serving.contract import SCHEMA
from serving.contract.credential import Role
from serving.contract.records import DeploymentRecord
from serving.contract.replica import ReplicaRecord, State
from serving.contract.replica_token import ReplicaTokens
from serving.contract.slot_shares import EngineLoad
from serving.contract.text_guard import TextGuard
from serving.contract.units import At
from serving.engine.adapter import EngineAdapter, LaunchSpec, ReplicaNeeds
from serving.engine.probe import EngineHealth, ProbeUsage
from serving.fleet.config import FleetTimings
from serving.fleet.engine_process import LogFile, ProcessIdentity
from serving.fleet.launcher import (
    Launcher,
    LaunchHandle,
    LaunchObservation,
    LaunchRequest,
    StartupLimiter,
)
from serving.fleet.local_launcher import handle_without_node

log = structlog.get_logger(__name__)


class CounterValues(msgspec.Struct, frozen=True):
    """Tokens and ended requests; prompts and requests count once per choice."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    requests: int = 0

    def plus(self, grown: "CounterValues") -> "CounterValues":
        """Return the sum of both."""
        return _each(lambda one, other: one + other, self, grown)

    def plus_probe(self, made: ProbeUsage) -> "CounterValues":
        """Return these with one more of the fleet's own test generations."""
        return self.plus(CounterValues(made.prompt_tokens, made.completion_tokens, 0, 1))

    def since(self, before: "CounterValues") -> "CounterValues":
        """Return what was added; an engine whose figures fell has begun anew, from zero."""
        added = _each(lambda now, then: now - then, self, before)
        return self if min(msgspec.structs.astuple(added)) < 0 else added


NOTHING = CounterValues()


class CounterTotals(msgspec.Struct, frozen=True):
    """The total of a replica's life, and the `engine`'s own figures it was last brought up to.

    An engine that we started began at zero with its replica. What another one counted before we
    first looked (`engine` is None until then) is not the replica's. `probes` are those that the
    total includes. The time between two looks was busy if customers' work was counted in it, or
    requests run at its end.
    """

    total: CounterValues = NOTHING
    engine: CounterValues | None = NOTHING
    probes: CounterValues = NOTHING
    busy_seconds: float = 0.0
    seen_at: At | None = None

    def updated(self, health: EngineHealth, probes: CounterValues, at: datetime) -> "CounterTotals":
        """Return the total brought up to the engine's figures at a moment."""
        engine = counters_of(health)
        grown = NOTHING if self.engine is None else engine.since(self.engine)
        is_busy = not health.is_idle or grown != probes.since(self.probes)
        seconds = (at - self.seen_at).total_seconds() if self.seen_at else 0.0
        return CounterTotals(
            total=self.total.plus(grown),
            engine=engine,
            probes=probes,
            busy_seconds=self.busy_seconds + (max(0.0, seconds) if is_busy else 0.0),
            seen_at=at,
        )


UNSEEN = CounterTotals(engine=None)


def counters_of(health: EngineHealth) -> CounterValues:
    """Return what an engine shows of its work."""
    return CounterValues(
        input_tokens=health.prompt_tokens,
        output_tokens=health.generation_tokens,
        cached_tokens=health.cached_tokens,
        requests=health.requests,
    )


def _each(
    verb: Callable[[int, int], int], one: CounterValues, other: CounterValues
) -> CounterValues:
    pairs = zip(msgspec.structs.astuple(one), msgspec.structs.astuple(other), strict=True)
    return CounterValues(*(verb(*pair) for pair in pairs))


NO_LOAD = EngineLoad(0, 0.0)


@dataclass(frozen=True, slots=True)
class FleetServices:
    """What a replica needs of its fleet. `save` has the fleet's state written, `saved` waits for it
    and what the replica is adopted from, and tells whether both are on disk. `place` gives it its
    port and GPUs, and raises NoRoom, StartRefused and WeightsUnreadable; `check_command` raises
    StartRefused for one that its engine would refuse."""

    timings: FleetTimings
    loading: StartupLimiter
    session: aiohttp.ClientSession
    launcher: Launcher
    tokens: ReplicaTokens
    changed: Callable[["ManagedReplica"], None]
    save: Callable[[], object]
    saved: Callable[["ManagedReplica"], Awaitable[bool]]
    place: Callable[["ManagedReplica"], Awaitable[None]]
    check_command: Callable[[DeploymentRecord, LaunchSpec], Awaitable[None]]


class StoredReplica(msgspec.Struct, frozen=True):
    """A replica that may still be running; one without a handle was about to be started. `devices`
    are the indexes of its GPUs.

    Releases without nodes wrote `port`, `leader` and `members` of an engine in place of a handle.
    """

    replica_id: str
    deployment: DeploymentRecord
    url: str
    state: State
    started_at: At
    port: int = 0
    leader: ProcessIdentity | None = None
    members: tuple[ProcessIdentity, ...] = ()
    ready_at: At | None = None
    ready_until: At | None = None
    counted: CounterTotals | None = None
    probes: CounterValues = NOTHING
    text_guard: TextGuard | None = None
    template_tokens: int | None = None
    kv_capacity_tokens: int | None = None
    weights_digest: str | None = None
    handle: LaunchHandle | None = None
    has_node: bool = True
    token_mark: str = ""
    """Of the root secret that its tokens are derived from."""
    schema: int = SCHEMA
    devices: tuple[int, ...] = ()


class ManagedReplica:
    """One copy of a deployment's engine: what is known of it. `lifecycle.py` sees it through."""

    def __init__(
        self,
        replica_id: str,
        deployment: DeploymentRecord,
        engine: EngineAdapter,
        log_file: LogFile,
        services: FleetServices,
        *,
        endpoint: str = "",
        pause_seconds: float = 0.0,
        load_seconds_before: float | None = None,
    ) -> None:
        self.replica_id = replica_id
        self.deployment = deployment
        self.engine = engine
        self.log_file = log_file
        self.services = services
        self.endpoint = endpoint
        self.url = endpoint or "http://127.0.0.1:0"
        self.is_placed = False
        """Whether it has a port and its GPUs until it is gone."""
        self.devices: tuple[int, ...] = ()
        """The indexes of its GPUs."""
        self.needs = ReplicaNeeds()  # known once it was placed
        self.no_room = self.rollout_reason = ""
        """What it waits for before it can start, and why the replicas that it is to replace do not
        make room."""
        self.was_refused = False
        """Whether it would fail again until its deployment changes."""
        self.drain_seconds = deployment.timeouts.total_seconds
        """What running requests may take until they are cut."""
        self.state: State = "pending"
        self.progress = self.reason = ""
        self.was_stuck = False
        self.handle: LaunchHandle | None = None
        self.token_mark = services.tokens.mark
        self.has_node = not endpoint
        """Whether a node is before its engine, which wants tokens."""
        self.text_guard: TextGuard | None = None
        """What its tokenizer was started with."""
        self.started_at = datetime.now(UTC)
        self.ready_since: float | None = None
        self.ended_at: float | None = None
        self.ready_at: datetime | None = None
        self.ready_until: datetime | None = None
        self.load_seconds: float | None = None
        self.health: EngineHealth | None = None
        """As its engine last showed them."""
        self.template_tokens: int | None = None
        self.kv_capacity_tokens: int | None = None
        self.weights_digest: str | None = None
        self.load_seconds_before = load_seconds_before
        """What the deployment's last replica took until it was ready,"""
        self.took_seconds: float | None = None
        """and what this one did."""
        self._loading_since: float | None = None
        self.counted = UNSEEN if endpoint else CounterTotals()
        self.probes = NOTHING
        self.has_current_counters = True
        self.pause_seconds = pause_seconds
        self.leaving = asyncio.Event()
        self.is_ending = False
        """Whether its engine is being ended: it has left, and cannot stay."""

    @property
    def is_over(self) -> bool:
        """Whether it has stopped or failed."""
        return self.state in ("stopped", "failed")

    @property
    def is_leaving(self) -> bool:
        """Whether it was told to go."""
        return self.leaving.is_set()

    @property
    def is_stopping(self) -> bool:
        """Whether it is about to give its memory back, whatever runs."""
        has_left = self.is_leaving and self.state not in ("ready", "draining")
        return not self.is_over and (self.is_ending or has_left)

    @property
    def is_gone(self) -> bool:
        """Whether it is over and has no process left, so that its GPUs are free again."""
        return self.is_over and not self.is_left

    @property
    def is_counted(self) -> bool:
        """Whether there is a count of its engine that is not behind what was told before."""
        return self.has_current_counters and self.state != "pending" and self.counted != UNSEEN

    @property
    def record(self) -> ReplicaRecord:
        """Return the replica as the feed tells it."""
        return ReplicaRecord(
            replica_id=self.replica_id,
            deployment_id=self.deployment.deployment_id,
            url=self.url,
            state=self.state,
            slots=self.deployment.slots,
            started_at=self.started_at,
            engine=self.engine.name,
            capabilities=self.engine.capabilities(self.deployment),
            progress=self.progress,
            reason=self.reason,
            probe_input_tokens=self.probes.input_tokens,
            probe_output_tokens=self.probes.output_tokens,
            load_seconds=self.load_seconds_before,
            text_guard=self.text_guard,
            template_tokens=self.template_tokens,
            kv_capacity_tokens=self.kv_capacity_tokens,
            weights_digest=self.weights_digest,
        )

    @property
    def engine_load(self) -> EngineLoad:
        """Return how full its engine is, coarsely; whoever waits for a grammar waits for no
        room."""
        vitals = self.health
        if vitals is None:
            return NO_LOAD
        waiting = max(0, vitals.waiting - vitals.deferred)
        return EngineLoad(waiting, min(1.0, max(0.0, round(vitals.cache_usage, 1))))

    @property
    def stored(self) -> StoredReplica:
        """Return the replica as it is remembered across the fleet's own life."""
        return StoredReplica(
            replica_id=self.replica_id,
            deployment=self.deployment,
            url=self.endpoint,
            state=self.state,
            started_at=self.started_at,
            ready_at=self.ready_at,
            ready_until=self.ready_until,
            counted=self.counted,
            probes=self.probes,
            text_guard=self.text_guard,
            template_tokens=self.template_tokens,
            kv_capacity_tokens=self.kv_capacity_tokens,
            weights_digest=self.weights_digest,
            handle=self.handle,
            has_node=self.has_node,
            token_mark=self.token_mark,
            devices=self.devices,
        )

    @property
    def gateway_token(self) -> str:
        """Return what gateways show its node; empty where there is none."""
        return self._token("gateway")

    @property
    def fleet_token(self) -> str:
        """Return what the fleet shows its node; empty where there is none."""
        return self._token("fleet")

    @property
    def is_left(self) -> bool:
        """Whether any of its processes is still there."""
        return self.handle is not None and self.services.launcher.observe(self.handle).is_left

    def launch_request(self, spec: LaunchSpec) -> LaunchRequest:
        """Return what a launcher is asked."""
        return LaunchRequest(
            *(self.replica_id, spec, self.log_file.path),
            *(self.gateway_token, self.fleet_token, self.needs),
        )

    def observe(self) -> LaunchObservation | None:
        """Look at its processes, and keep what is learned; None where others run the engine."""
        if self.handle is None:
            return None
        seen = self.services.launcher.observe(self.handle)
        self.url = seen.url or self.url
        if seen.handle != self.handle:
            self.handle = seen.handle
            self.services.save()
        return seen

    def end(self, *, at_once: bool) -> None:
        """Have its processes finish and end, or killed."""
        if self.handle is not None:
            self.services.launcher.end(self.handle, at_once=at_once)

    def restore(self, stored: StoredReplica) -> bool:
        """Take over what an earlier fleet left; False when its engine is gone."""
        self.devices = stored.devices
        self.url = stored.url or f"http://127.0.0.1:{stored.port}"
        self.state = stored.state
        self.started_at = stored.started_at
        self.ready_at, self.ready_until = stored.ready_at, stored.ready_until
        self.counted = stored.counted or self.counted
        self.probes, self.text_guard = stored.probes, stored.text_guard
        self.template_tokens = stored.template_tokens
        self.kv_capacity_tokens = stored.kv_capacity_tokens
        self.weights_digest = stored.weights_digest
        # Until it is looked at: samples were told of later moments.
        self.has_current_counters = False
        if self.endpoint:
            return True
        self.token_mark = stored.token_mark
        self.has_node = stored.has_node and not stored.port
        self.handle, self.is_placed = stored.handle, True
        if self.handle is None and stored.leader is not None:
            self.handle = handle_without_node(stored.leader, stored.members, self.url)
        if self.handle is None:
            self.handle = self.services.launcher.find(self.replica_id)
        if self.state == "pending":
            self.state = "loading"
        if self.state == "draining":
            self.drain()
        seen = self.observe()
        return seen is not None and seen.is_alive

    def record_health(self, health: EngineHealth) -> None:
        """Take in what the engine counted; all probes so far are part of it."""
        self.health = health
        self.counted = self.counted.updated(health, self.probes, datetime.now(UTC))
        self.has_current_counters = True

    def record_probe(self, made: ProbeUsage) -> None:
        """Take in a test generation, and have it remembered: nobody else can tell it apart."""
        self.probes = self.probes.plus_probe(made)
        self.services.changed(self)
        self.services.save()

    def ready_seconds(self, at: datetime) -> int:
        """Return how long it was ready until `at`."""
        if self.ready_at is None:
            return 0
        return max(0, int((min(at, self.ready_until or at) - self.ready_at).total_seconds()))

    def drain(self) -> None:
        """Ask it to drain and stop; it does so at its next step."""
        self.leaving.set()

    def resume(self) -> None:
        """Ask it to be ready again, if it only drains."""
        if self.state in ("ready", "draining") and not self.is_ending:
            self.leaving.clear()

    def set_state(self, state: State, progress: str = "", *, reason: str = "") -> None:
        """Take on a state and tell the fleet."""
        if state != self.state:
            log.info("replica_state", replica_id=self.replica_id, state=state, was=self.state)
            self._note_readiness(state)
        self.state = state
        self.progress = progress
        self.reason = reason
        self.services.changed(self)

    def _token(self, role: Role) -> str:
        if not self.has_node:
            return ""
        return self.services.tokens.token(role, self.replica_id, self.token_mark)

    def _note_readiness(self, state: State) -> None:
        if state == "loading":
            self._loading_since = time.monotonic()
        elif state == "ready":
            if self.ready_at is None and self._loading_since is not None:
                self.took_seconds = time.monotonic() - self._loading_since
            # One that is called back has been ready all the while: its seconds only grow.
            self.ready_at, self.ready_until = self.ready_at or datetime.now(UTC), None
        elif self.state == "ready":
            self.ready_until = datetime.now(UTC)
