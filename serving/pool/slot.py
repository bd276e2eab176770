"""A slot: one request's place on a replica, what it showed of it, and what it took."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from serving.engine.usage import Tokens
from serving.pool.replica import Replica
from serving.pool.ticket import Ticket

if TYPE_CHECKING:
    from serving.pool.pool import Pool


class Slot:
    """Held with `async with`; `works` and `broke` say how the request fares, and neither is said
    of a client that left. What nobody says it `took` stays as it was estimated."""

    __slots__ = ("_avoid", "_incidents", "_pool", "_service", "_ticket", "replica")

    def __init__(self, pool: "Pool", ticket: Ticket, avoid: Collection[str]) -> None:
        self._pool = pool
        self._ticket = ticket
        self._avoid = avoid

    async def __aenter__(self) -> "Slot":
        """Raises PoolError."""
        place = await self._pool.take(self._ticket, self._avoid)
        self.replica: Replica = place.replica
        self._service = place.service
        self._incidents = self.replica.incidents
        return self

    async def __aexit__(self, *_: object) -> None:
        self._pool.give_back(self.replica, self._service)

    def took(self, tokens: Tokens | None) -> None:
        """Say at the end what the request took; of one that nobody counted, None."""
        self._pool.settle(self._service, tokens)

    def works(self) -> None:
        """A token came."""
        self._pool.note_success(self.replica, self._ticket.fingerprint)

    def broke(self, *, is_at_fault: bool = False) -> None:
        """The replica failed, broke off or fell silent. What began before an incident that is
        already known, and breaks with it, is a part of that."""
        if self._incidents == self.replica.incidents:
            self._pool.note_incident(
                self.replica, self._ticket.fingerprint, is_at_fault=is_at_fault
            )
