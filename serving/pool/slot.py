"""A slot: one request's place on a replica, and what it showed of it."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from serving.pool.replica import Replica
from serving.pool.suspicion import Fingerprint

if TYPE_CHECKING:
    from serving.pool.pool import Pool


class Slot:
    """Held with `async with`; `works` and `broke` say how the request fares, and neither is said
    of a client that left."""

    __slots__ = ("_avoid", "_fingerprint", "_incidents", "_pool", "replica")

    def __init__(self, pool: "Pool", fingerprint: Fingerprint, avoid: Collection[str]) -> None:
        self._pool = pool
        self._fingerprint = fingerprint
        self._avoid = avoid

    async def __aenter__(self) -> "Slot":
        """Raises PoolError."""
        self.replica: Replica = await self._pool.take(self._fingerprint, self._avoid)
        self._incidents = self.replica.incidents
        return self

    async def __aexit__(self, *_: object) -> None:
        self._pool.give_back(self.replica)

    def works(self) -> None:
        """A token came."""
        self._pool.note_success(self.replica, self._fingerprint)

    def broke(self, *, is_at_fault: bool = False) -> None:
        """The replica failed, broke off or fell silent. What began before an incident that is
        already known, and breaks with it, is a part of that."""
        if self._incidents == self.replica.incidents:
            self._pool.note_incident(self.replica, self._fingerprint, is_at_fault=is_at_fault)
