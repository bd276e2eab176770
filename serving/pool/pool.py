"""The pool of one deployment: its replicas, their slots, and the queue before them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager

from serving.contract.replica import ReplicaRecord
from serving.pool.queue import FairQueue
from serving.pool.replica import Replica
from serving.pool.route import choose

QUEUE_LENGTH_MAX = 1_024
QUEUE_SECONDS_MAX = 30.0


class PoolError(Exception):
    """No slot for this request."""


class NoReplica(PoolError):
    """No replica of the deployment is ready."""


class Overloaded(PoolError):
    """Every slot is taken and the queue is full, or the wait was too long."""


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
        self.queue = FairQueue(queue_length_max)
        self._called = 0
        self._clock = clock
        self._queue_seconds_max = queue_seconds_max

    @property
    def has_ready_replica(self) -> bool:
        """Whether any replica is ready by the feed."""
        return any(replica.record.state == "ready" for replica in self.replicas.values())

    def set_replicas(self, records: Mapping[str, ReplicaRecord]) -> None:
        """Bring the pool to what the feed says; a replica that stays keeps its counts."""
        kept = {}
        for replica_id, record in records.items():
            replica = self.replicas.get(replica_id) or Replica(record)
            replica.record = record
            kept[replica_id] = replica
        self.replicas = kept
        self._call_next()

    @asynccontextmanager
    async def slot(
        self, organization_id: str, avoid: Collection[str] = ()
    ) -> AsyncIterator[Replica]:
        """Wait for one's turn and hold a slot of the chosen replica. Raises PoolError."""
        replica = await self._take(organization_id, avoid)
        try:
            yield replica
        finally:
            replica.in_flight -= 1
            self._call_next()

    async def _take(self, organization_id: str, avoid: Collection[str]) -> Replica:
        # Whoever was called but has not run yet goes before a newcomer.
        replica = None if self.queue or self._called else self._choose(avoid)
        if replica is None:
            replica = await self._wait(organization_id, avoid)
        replica.in_flight += 1
        if self.queue and self._choose() is not None:
            self._call_next()
        return replica

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
        now = self._clock()
        if not any(replica.is_usable(now) for replica in self.replicas.values()):
            self._call_next()  # the next in line must hear of it too
            raise NoReplica(self.deployment_id)
        if self.queue.is_full or now >= deadline:
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
