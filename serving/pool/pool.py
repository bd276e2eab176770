"""The pool of one deployment: its replicas, their slots, and the queue before them."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping

from serving.contract.capabilities import ISOLATING
from serving.contract.replica import ReplicaRecord
from serving.pool.queue import FairQueue
from serving.pool.replica import Replica
from serving.pool.route import choose
from serving.pool.slot import Slot
from serving.pool.suspicion import Fingerprint, Suspicions

QUEUE_LENGTH_MAX = 1_024
QUEUE_SECONDS_MAX = 30.0


class PoolError(Exception):
    """No slot for this request."""


class NoReplica(PoolError):
    """No replica of the deployment is ready."""


class Overloaded(PoolError):
    """Every slot is taken and the queue is full, or the wait was too long."""


class Quarantined(PoolError):
    """Such requests broke engines; they are refused for `seconds` more."""

    def __init__(self, seconds: float) -> None:
        super().__init__("quarantined")
        self.seconds = seconds


class Pool:
    """Slots of one deployment. `clock` is monotonic seconds."""

    def __init__(
        self,
        deployment_id: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        queue_length_max: int = QUEUE_LENGTH_MAX,
        queue_seconds_max: float = QUEUE_SECONDS_MAX,
    ) -> None:
        self.deployment_id = deployment_id
        self.replicas: dict[str, Replica] = {}
        self.capabilities: frozenset[str] = frozenset()
        """What every ready replica declares."""
        self.queue = FairQueue(queue_length_max)
        self._called = 0
        self._clock = clock
        self._queue_seconds_max = queue_seconds_max
        self._suspicions = Suspicions(clock)

    @property
    def has_ready_replica(self) -> bool:
        """Whether any replica is ready by the feed."""
        return any(replica.is_ready for replica in self.replicas.values())

    @property
    def is_isolating(self) -> bool:
        """Whether organizations that share it learn nothing of each other by its prefix cache."""
        return not ISOLATING.isdisjoint(self.capabilities)

    @property
    def load(self) -> float:
        """How many requests it has for each slot of its ready replicas, waiting ones included."""
        ready = [replica for replica in self.replicas.values() if replica.is_ready]
        slots = sum(replica.record.slots for replica in ready)
        taken = sum(replica.in_flight for replica in ready) + len(self.queue)
        return taken / slots if slots else float("inf")

    def set_replicas(self, records: Mapping[str, ReplicaRecord]) -> None:
        """Bring the pool to what the feed says; a replica that stays keeps its counts."""
        kept = {}
        for replica_id, record in records.items():
            replica = self.replicas.get(replica_id) or Replica(record)
            replica.record = record
            kept[replica_id] = replica
        for replica_id in self.replicas:
            if replica_id not in kept or not kept[replica_id].is_ready:
                self._suspicions.forget_replica(replica_id)
        self.replicas = kept
        declared = [set(each.record.capabilities) for each in kept.values() if each.is_ready]
        self.capabilities = frozenset(set.intersection(*declared)) if declared else frozenset()
        self._call_next()

    def slot(
        self, organization_id: str, avoid: Collection[str] = (), *, feature: str = "plain"
    ) -> Slot:
        """Return a slot to hold with `async with`, once it is its turn; entering it raises
        PoolError."""
        return Slot(self, Fingerprint(organization_id, feature), avoid)

    async def take(self, fingerprint: Fingerprint, avoid: Collection[str]) -> Replica:
        """Wait for one's turn and take a place on the chosen replica. Raises PoolError."""
        if seconds := self._suspicions.quarantined_seconds(fingerprint):
            raise Quarantined(seconds)
        # Whoever was called but has not run yet goes before a newcomer.
        replica = None if self.queue or self._called else self._choose(avoid)
        if replica is None:
            replica = await self._wait(fingerprint.organization_id, avoid)
        replica.in_flight += 1
        if self.queue and self._choose() is not None:
            self._call_next()
        return replica

    def give_back(self, replica: Replica) -> None:
        """End what `take` began."""
        replica.in_flight -= 1
        self._call_next()

    def note_success(self, replica: Replica, fingerprint: Fingerprint) -> None:
        """A replica made a token: it works, and so do such requests."""
        self._suspicions.clear(fingerprint)
        if replica.in_a_row:
            was_on_trial = replica.is_on_trial
            replica.note_success()
            if was_on_trial:
                self._call_next()

    def note_incident(
        self, replica: Replica, fingerprint: Fingerprint, *, is_at_fault: bool
    ) -> None:
        """A replica broke under such a request."""
        if not is_at_fault:
            self._suspicions.note_incident(fingerprint, replica.record.replica_id)
        pause = replica.note_incident(
            fingerprint.organization_id, self._clock(), is_at_fault=is_at_fault
        )
        self._call_when_over(pause)

    def convict(self, replica_ids: Collection[str]) -> None:
        """What broke these replicas was served by another: it was their fault."""
        for replica_id in replica_ids:
            replica = self.replicas.get(replica_id)
            if replica is not None and replica.in_a_row:
                replica.is_at_fault = True
                self._call_when_over(replica.eject(self._clock()))

    def _call_when_over(self, pause: float) -> None:
        """Those who wait look again when an ejection ends."""
        if pause:
            asyncio.get_running_loop().call_later(pause, self._call_next)

    async def _wait(self, organization_id: str, avoid: Collection[str]) -> Replica:
        deadline = self._clock() + self._queue_seconds_max
        while True:
            self._check(deadline)
            await self._turn(organization_id, deadline)
            replica = self._choose(avoid)
            if replica is not None:
                return replica

    def _choose(self, avoid: Collection[str] = ()) -> Replica | None:
        return choose(self.replicas.values(), self._clock(), avoid)

    def _check(self, deadline: float) -> None:
        if not self.has_ready_replica:
            self._call_next()  # the next in line must hear of it too
            raise NoReplica(self.deployment_id)
        if self.queue.is_full or self._clock() >= deadline:
            raise Overloaded(self.deployment_id)

    def _call_next(self) -> None:
        if self.queue.call_next():
            self._called += 1

    async def _turn(self, organization_id: str, deadline: float) -> None:
        turn = self.queue.join(organization_id)
        try:
            async with asyncio.timeout(deadline - self._clock()):
                await turn
        except TimeoutError:
            raise Overloaded(self.deployment_id) from None
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._call_next()
            raise
        finally:
            if turn.done() and not turn.cancelled():
                self._called -= 1
            self.queue.leave(organization_id, turn)
