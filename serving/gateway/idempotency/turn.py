"""The one request of a key, at work in this process."""

import asyncio
from collections.abc import Awaitable

from serving.contract.idempotency import ClaimEnding, IdempotencyClaim
from serving.gateway.conversation import Conversation
from serving.gateway.errors import Headers, Unavailable
from serving.gateway.idempotency.copy import Copy
from serving.gateway.idempotency.sealing import Answer, seal
from serving.gateway.idempotency.wish import Wish
from serving.usage.claims import ClaimStateUnknown, IdempotencyClaims
from serving.usage.journal_writer import JournalUnavailable

TELL_SECONDS = 2.0
"""How long others of the same key wait for control to hear how this request ended."""


class Turn:
    """Copies what its client, the leader, is told, and has it kept."""

    def __init__(
        self,
        wish: Wish,
        claim: IdempotencyClaim,
        leader: Conversation,
        claims: IdempotencyClaims,
        copy: Copy,
    ) -> None:
        self.wish = wish
        self.claim = claim
        self.leader = leader
        self.copy = copy
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when another of the same key may try."""
        self._claims = claims
        self._is_completed: bool | None = False
        """None while that is being made durable: should we end meanwhile, the journal knows."""

    async def keep(self, headers: Headers, tail: bytes) -> None:
        """Have control keep the answer, with the end that its client has yet to see.

        Raises Unavailable unless it is kept: then the request must not complete.
        """
        sealed = None if self.copy.is_too_long else await self._sealed(headers, tail)
        try:
            is_kept = await self._claims.keep(self.claim, sealed)
        except ClaimStateUnknown:
            raise not_kept() from None
        if not is_kept:
            raise not_kept()

    async def complete(self, committed: Awaitable[None]) -> None:
        """Await that the event is durable. Raises JournalUnavailable."""
        self._is_completed = None
        try:
            await committed
        except JournalUnavailable:
            self._is_completed = False
            raise
        self._is_completed = True

    async def end(self) -> None:
        """Tell control how it ended, and wait a little until it has heard; where that is unknown,
        the next life tells."""
        if self._is_completed is None:
            return
        claim = self.claim
        ending = ClaimEnding(claim.organization_id, claim.event_id, self._is_completed)
        await asyncio.wait({self._claims.end(ending)}, timeout=TELL_SECONDS)

    async def _sealed(self, headers: Headers, tail: bytes) -> bytes | None:
        answer = Answer(tuple(headers), b"".join((*self.copy.pieces, tail)))
        return await asyncio.to_thread(
            seal, answer, key=self.wish.seal, event_id=self.claim.event_id
        )


def not_kept() -> Unavailable:
    """Return the error for an answer that could not be kept, and is not charged."""
    message = "Your answer could not be kept for its Idempotency-Key; it is not charged. Try again."
    return Unavailable(message, code="idempotency_unavailable")
