"""What replicas showed of themselves: which of them are ejected, which requests may be why, and
after how long without a token a second one is asked.

Requests that break engines are suspected before the engines are, by who asks for what, never by
content: a fingerprint is an organization and a class of features.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from serving.engine.events import TokenUsage
from serving.pool.hedging import HedgePolicy
from serving.pool.outlier_detection import OutlierDetector
from serving.pool.replicas import Replica
from serving.pool.slot_request import RequestFingerprint, SlotRequest

QUARANTINE_AFTER_INCIDENTS = 2
QUARANTINE_SECONDS = 10.0
QUARANTINE_SECONDS_MAX = 600.0
FORGET_SECONDS = 600.0
FINGERPRINTS_MAX = 10_000


@dataclass(slots=True)
class PoisonRecord:
    """What is held against one fingerprint."""

    incidents: int = 0
    last_at: float = 0.0
    until: float = 0.0
    replica_ids: set[str] = field(default_factory=set)


class PoisonRequestDetector:
    """Of one deployment. Only what broke an engine is remembered; `clock` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.held: dict[RequestFingerprint, PoisonRecord] = {}

    def quarantined_seconds(self, fingerprint: RequestFingerprint) -> float:
        """Return for how much longer such requests are refused; 0 when they are not."""
        held = self.held.get(fingerprint)
        return 0.0 if held is None else max(0.0, held.until - self._clock())

    def is_suspected(self, fingerprint: RequestFingerprint) -> bool:
        """Tell whether anything is held against such requests."""
        return fingerprint in self.held

    def record_incident(self, fingerprint: RequestFingerprint, replica_id: str) -> None:
        """A replica broke under such a request."""
        now = self._clock()
        held = self.held.get(fingerprint)
        if held is None or now - held.last_at > FORGET_SECONDS:
            self._make_room()
            held = self.held[fingerprint] = PoisonRecord()
        held.incidents += 1
        held.last_at = now
        held.replica_ids.add(replica_id)
        repeats = held.incidents - QUARANTINE_AFTER_INCIDENTS
        if repeats >= 0:
            pause = QUARANTINE_SECONDS * 2 ** min(repeats, 10)
            held.until = now + min(QUARANTINE_SECONDS_MAX, pause)

    def clear(self, fingerprint: RequestFingerprint) -> None:
        """The very request that broke a replica was answered by another: it was not the request.

        That others of its kind are answered says nothing: who breaks engines sends sound requests
        too.
        """
        self.held.pop(fingerprint, None)

    def forget_replica(self, replica_id: str) -> None:
        """A replica is gone: what broke it alone is refused no longer, until it breaks another."""
        for held in self.held.values():
            if held.replica_ids == {replica_id}:
                held.until = 0.0

    def _make_room(self) -> None:
        while len(self.held) >= FINGERPRINTS_MAX:
            del self.held[next(iter(self.held))]


class ReplicaHealth:
    """Of one pool. `clock` is monotonic seconds; `on_sound` hears when a replica may be used again.

    Of replicas that are gone nothing is remembered.
    """

    def __init__(self, clock: Callable[[], float], on_sound: Callable[[], None]) -> None:
        self.hedging = HedgePolicy(clock)
        self._poison_requests = PoisonRequestDetector(clock)
        self.suspects = self._poison_requests.held
        """Whatever is held against requests, most of the time nothing."""
        self._outliers = OutlierDetector(clock)
        self._replicas: Mapping[str, Replica] = {}
        self._clock = clock
        self._on_sound = on_sound

    def set_replicas(self, replicas: Mapping[str, Replica]) -> None:
        """Take in which replicas there are; what was known of those that are no longer ready is
        forgotten."""
        for replica_id in self._replicas:
            if replica_id not in replicas or not replicas[replica_id].is_ready:
                self._poison_requests.forget_replica(replica_id)
                self.hedging.forget(replica_id)
                self._outliers.forget(replica_id)
        self._replicas = replicas

    def quarantined_seconds(self, request: SlotRequest) -> float:
        """Return for how much longer such requests are refused, as they broke engines; 0 when they
        are not."""
        return self._poison_requests.quarantined_seconds(request.fingerprint)

    def late_seconds(self, replica: Replica, request: SlotRequest) -> float | None:
        """Return after how long without a token a second replica should be asked too; None: never,
        as for what may have broken an engine."""
        if request.tier != "priority" or request.sequences > 1:
            return None
        if self._poison_requests.is_suspected(request.fingerprint):
            return None
        return self.hedging.seconds_for(replica.record.replica_id, request.input_tokens)

    def record_first_token(self, replica: Replica, request: SlotRequest, seconds: float) -> None:
        """A first token took so long, or longer."""
        if self._has(replica):
            replica_id = replica.record.replica_id
            self.hedging.times.record(replica_id, request.input_tokens, seconds, self._clock())

    def record_latencies(
        self, replica: Replica, tokens: TokenUsage, first: float, each: float | None
    ) -> None:
        """A first token took so long, and each of those after it; put the replica out, or take it
        back, if that says so."""
        if not self._has(replica):
            return
        was_out = replica.slow_until > 0.0
        self._outliers.record(replica.record.replica_id, tokens, first, each)
        self._dispatch_after(self._outliers.slowness(replica, self._replicas.values()))
        if was_out and not replica.slow_until:
            self._on_sound()

    def record_success(self, replica: Replica) -> None:
        """A replica made a token: it works."""
        if replica.consecutive_failures:
            was_on_trial = replica.on_probation
            replica.record_success()
            if was_on_trial:
                self._on_sound()

    def suspect(self, replica: Replica, fingerprint: RequestFingerprint) -> None:
        """Such a request may have broken a replica."""
        self._poison_requests.record_incident(fingerprint, replica.record.replica_id)

    def record_incident(self, replica: Replica, request: SlotRequest, *, is_at_fault: bool) -> None:
        """A replica broke under a request, and is or may be at fault."""
        now = self._clock()
        self._dispatch_after(
            replica.record_incident(request.organization_id, now, is_at_fault=is_at_fault)
        )

    def confirm_replica_fault(self, replica: Replica, fingerprint: RequestFingerprint) -> None:
        """What broke a replica was served by another: it was the replica's fault."""
        self._poison_requests.clear(fingerprint)
        if self._has(replica) and replica.consecutive_failures:
            replica.is_at_fault = True
            self._dispatch_after(replica.eject(self._clock()))

    def _has(self, replica: Replica) -> bool:
        return self._replicas.get(replica.record.replica_id) is replica

    def _dispatch_after(self, pause: float) -> None:
        """One is out for so many seconds, if any."""
        if pause:
            asyncio.get_running_loop().call_later(pause, self._on_sound)
