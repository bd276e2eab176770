"""A slot: one request's place on a replica, what it showed of it, and what it took."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from serving.engine.events import TokenUsage
from serving.pool.loss import Unanswered
from serving.pool.replica import Replica
from serving.pool.ticket import Ticket

if TYPE_CHECKING:
    from serving.pool.pool import Pool

PACED_TOKENS_MIN = 8
"""Of a sequence whose time for each token is believed."""


class Slot:
    """Held with `async with`; `works` and `broke` say how the request fares, and neither is said
    of a client that left. What nobody says it `took` is charged by the progress that its `service`
    states, if it states any. One that `is_spare` waits for nothing: it is there, or there is none.
    `pool` is, once it is held, the one that it is of."""

    __slots__ = (
        *("_avoid", "_elsewhere", "_first_at", "_incidents", "_is_spare", "_place"),
        *("pool", "replica", "service", "ticket", "unanswered"),
    )

    def __init__(
        self,
        pool: "Pool",
        ticket: Ticket,
        avoid: Collection[str],
        elsewhere: Collection["Pool"] = (),
        *,
        is_spare: bool = False,
    ) -> None:
        self.pool = pool
        self.ticket = ticket
        self._avoid = avoid
        self._elsewhere = elsewhere
        self._is_spare = is_spare
        self._first_at: float | None = None

    async def __aenter__(self) -> "Slot":
        """Raises PoolError."""
        if self._is_spare:
            self._place = self.pool.take_spare(self.ticket, self._avoid)
        else:
            self._place = await self.pool.take(self.ticket, self._avoid, self._elsewhere)
        self.pool, self.service = self._place.pool, self._place.service
        self.replica: Replica = self._place.replica
        self.unanswered = Unanswered(self.replica.unanswered)
        self._incidents = self.replica.incidents
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self.service.is_settled:
            progress = self.service.progress
            self.pool.queue.settle(self.service, None if progress is None else progress())
        self.pool.give_back(self._place)

    @property
    def late_seconds(self) -> float | None:
        """After how long without a token a second replica should be asked too; None: never."""
        return self.pool.health.late_seconds(self.replica, self.ticket)

    def beside(self) -> "Slot":
        """Return a slot on another replica for the same request, where there is one to spare."""
        avoid = (*self._avoid, self.replica.record.replica_id)
        return Slot(self.pool, self.ticket, avoid, is_spare=True)

    def vacate(self) -> None:
        """The engine has sent its last byte: others may have the slots while the rest is done."""
        self.unanswered.answered()
        self._place = self.pool.vacate(self._place)

    def took(self, tokens: TokenUsage | None) -> None:
        """Say at the end what the request took; of one that nobody counted, None."""
        self.pool.queue.settle(self.service, tokens)
        if self._first_at is not None and tokens is not None and tokens.input:
            self._note_times(tokens, self._first_at - self.service.began_at)

    def works(self) -> None:
        """A token came."""
        self.pool.health.note_success(self.replica)
        if self._first_at is None:
            self.unanswered.answered()
            self._first_at = self.service.vacated_at or self.pool.now
            self._place = self.pool.note_read(self._place)
            self.pool.health.note_first(
                self.replica, self.ticket, self._first_at - self.service.began_at
            )

    def outrun(self) -> None:
        """Another replica was faster: its organization pays no turn for it. One that was late says
        that it would have taken longer yet."""
        self.pool.queue.refund(self.service)
        seconds, late = self.pool.now - self.service.began_at, self.late_seconds
        if self._first_at is None and late is not None and seconds >= late:
            self.pool.health.note_first(self.replica, self.ticket, seconds)
            # As if all of the prompt had to be read: how much of it was cached is not known.
            self._note_times(TokenUsage(self.ticket.input_tokens), seconds)

    def broke(self, *, is_at_fault: bool = False) -> None:
        """The replica failed, broke off or fell silent. What began before an incident that is
        already known, and breaks with it, is a part of that; what had a token is no suspect."""
        if self._incidents != self.replica.incidents:
            return
        if self._first_at is None and not is_at_fault:
            self.pool.health.suspect(self.replica, self.ticket.fingerprint)
        self.pool.health.note_incident(self.replica, self.ticket, is_at_fault=is_at_fault)

    def convict(self) -> None:
        """What broke the replica was served by another: it was the replica's fault."""
        self.pool.health.convict(self.replica, self.ticket.fingerprint)

    def _note_times(self, tokens: TokenUsage, first: float) -> None:
        """Say how long the first token took, and each of those after it."""
        if self.service.began_at < self.replica.slow_until:
            return  # It says nothing of how the replica fares since it was put out.
        made, each = tokens.output / self.ticket.width, None
        if made >= PACED_TOKENS_MIN:
            ended_at = self.service.vacated_at or self.pool.now
            each = (ended_at - self.service.began_at - first) / (made - 1)
            # Of several choices some may have ended long ago.
            if each > 0.0 and self.ticket.width == 1:
                self.pool.queue.slot_second.note_pace(1.0 / each)
        self.pool.health.note_times(self.replica, tokens, first, each)
