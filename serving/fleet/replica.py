"""One replica as data: its state, its engine's process, and how both are told and stored."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import aiohttp
import structlog

from serving.contract.records import DeploymentRecord
from serving.contract.replica import ReplicaRecord, State
from serving.contract.slot_shares import EngineLoad
from serving.contract.text_guard import TextGuard
from serving.engine.adapter import EngineAdapter
from serving.engine.probe import EngineHealth, ProbeUsage
from serving.fleet.config import Timings
from serving.fleet.counted import NOTHING, UNSEEN, Counted
from serving.fleet.group import Group, find_group
from serving.fleet.loading import LoadingTurns
from serving.fleet.log_file import LogFile
from serving.fleet.store import StoredReplica

NO_STRAIN = EngineLoad(0, 0.0)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a replica needs of its fleet. `choose_port` raises CannotStart; `save` has the
    fleet's state written, `saved` waits for it and tells whether it is on disk."""

    timings: Timings
    loading: LoadingTurns
    session: aiohttp.ClientSession
    choose_port: Callable[[], int]
    changed: Callable[["Replica"], None]
    save: Callable[[], object]
    saved: Callable[[], Awaitable[bool]]


class Replica:
    """One copy of a deployment's engine: what is known of it. `life.py` sees it through."""

    def __init__(
        self,
        replica_id: str,
        deployment: DeploymentRecord,
        engine: EngineAdapter,
        log_file: LogFile,
        around: Surroundings,
        *,
        place: str = "",
        pause_seconds: float = 0.0,
        load_seconds_before: float | None = None,
    ) -> None:
        self.replica_id = replica_id
        self.deployment = deployment
        self.engine = engine
        self.log_file = log_file
        self.around = around
        self.place = place
        self.url = place or "http://127.0.0.1:0"
        self.port = 0
        self.state: State = "pending"
        self.progress = ""
        self.reason = ""
        self.was_stuck = False
        self.group: Group | None = None
        self.text_guard: TextGuard | None = None
        """What its tokenizer was started with."""
        self.started_at = datetime.now(UTC)
        self.ready_since: float | None = None
        self.ended_at: float | None = None
        self.ready_at: datetime | None = None
        self.ready_until: datetime | None = None
        self.load_seconds: float | None = None
        self.vitals: EngineHealth | None = None
        """As its engine last showed them."""
        self.template_tokens: int | None = None
        self.load_seconds_before = load_seconds_before
        """What the deployment's last replica took until it was ready,"""
        self.took_seconds: float | None = None
        """and what this one did."""
        self._loads_since: float | None = None
        self.counted = UNSEEN if place else Counted()
        self.probes = NOTHING
        self.is_known = True
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
    def is_counted(self) -> bool:
        """Whether there is a count of its engine that is not behind what was told before."""
        return self.is_known and self.state != "pending" and self.counted != UNSEEN

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
        )

    @property
    def strain(self) -> EngineLoad:
        """Return how full its engine is, coarsely; whoever waits for a grammar waits for no
        room."""
        vitals = self.vitals
        if vitals is None:
            return NO_STRAIN
        waiting = max(0, vitals.waiting - vitals.deferred)
        return EngineLoad(waiting, min(1.0, max(0.0, round(vitals.cache_usage, 1))))

    @property
    def stored(self) -> StoredReplica:
        """Return the replica as it is remembered across the fleet's own life."""
        return StoredReplica(
            replica_id=self.replica_id,
            deployment=self.deployment,
            url=self.place,
            port=self.port,
            state=self.state,
            started_at=self.started_at,
            leader=self.group.leader if self.group else None,
            members=self.group.members if self.group else (),
            ready_at=self.ready_at,
            ready_until=self.ready_until,
            counted=self.counted,
            probes=self.probes,
            text_guard=self.text_guard,
            template_tokens=self.template_tokens,
        )

    def restore(self, stored: StoredReplica) -> bool:
        """Take over what an earlier fleet left; False when its engine is gone."""
        self.port = stored.port
        self.url = stored.url or f"http://127.0.0.1:{stored.port}"
        self.state = stored.state
        self.started_at = stored.started_at
        self.ready_at, self.ready_until = stored.ready_at, stored.ready_until
        self.counted = stored.counted or self.counted
        self.probes, self.text_guard = stored.probes, stored.text_guard
        self.template_tokens = stored.template_tokens
        self.is_known = False  # until it is looked at: samples were told of later moments
        if self.place:
            return True
        if stored.leader is None:
            self.group = find_group(self.replica_id)
        else:
            self.group = Group(stored.leader, stored.members)
        if self.state == "pending":
            self.state = "loading"
        if self.state == "draining":
            self.leave()
        return self.group is not None and self.group.is_alive

    def saw(self, vitals: EngineHealth) -> None:
        """Take in what the engine counted; all probes so far are part of it."""
        self.vitals = vitals
        self.counted = self.counted.saw(vitals, self.probes, datetime.now(UTC))
        self.is_known = True

    def probed(self, made: ProbeUsage) -> None:
        """Take in a test generation, and have it remembered: nobody else can tell it apart."""
        self.probes = self.probes.plus_probe(made)
        self.around.changed(self)
        self.around.save()

    def ready_seconds(self, at: datetime) -> int:
        """Return how long it was ready until `at`."""
        if self.ready_at is None:
            return 0
        return max(0, int((min(at, self.ready_until or at) - self.ready_at).total_seconds()))

    def leave(self) -> None:
        """Ask it to drain and stop; it does so at its next step."""
        self.leaving.set()

    def stay(self) -> None:
        """Ask it to be ready again, if it only drains."""
        if self.state in ("ready", "draining") and not self.is_ending:
            self.leaving.clear()

    def now_is(self, state: State, progress: str = "", *, reason: str = "") -> None:
        """Take on a state and tell the fleet."""
        if state != self.state:
            log.info("replica_state", replica_id=self.replica_id, state=state, was=self.state)
            self._note_readiness(state)
        self.state = state
        self.progress = progress
        self.reason = reason
        self.around.changed(self)

    def _note_readiness(self, state: State) -> None:
        if state == "loading":
            self._loads_since = time.monotonic()
        elif state == "ready":
            if self.ready_at is None and self._loads_since is not None:
                self.took_seconds = time.monotonic() - self._loads_since
            # One that is called back has been ready all the while: its seconds only grow.
            self.ready_at, self.ready_until = self.ready_at or datetime.now(UTC), None
        elif self.state == "ready":
            self.ready_until = datetime.now(UTC)
