"""A gateway's claims on idempotency keys, as control knows them.

The journal remembers each from before control is asked until control has heard how it ended: with
the event, in one transaction, whether it completed. Whatever dies in between, this gateway or its
next life tells it: no key waits for a request that is no more.
"""

import asyncio
from collections.abc import Iterable

import structlog

from serving.contract.idempotency import (
    ENDINGS_MAX,
    ClaimEnding,
    ClaimEndings,
    ClaimEndingsReply,
    ClaimGrant,
    ClaimReply,
    IdempotencyClaim,
    StoreResponse,
    StoreResponseReply,
    Verdict,
)
from serving.internal_http import InternalCallError
from serving.usage.control_api import ControlApi
from serving.usage.journal import Journal

log = structlog.get_logger(__name__)

CLAIM_SECONDS = 2.0
KEEP_TRY_SECONDS = 5.0
END_SECONDS = 5.0
KEEP_SECONDS = 15.0
"""The end of an answer waits this long for control to keep it, which may be restarting."""
AGAIN_SECONDS = 0.5
BACKOFF_MAX_SECONDS = 5.0
CLAIMS, ANSWERS, ENDINGS = (f"idempotency/{name}" for name in ("claims", "responses", "endings"))


class ClaimStateUnknown(Exception):
    """Control did not answer: whether it did as it was asked, nobody knows."""


class IdempotencyClaims:
    """Asks control, and goes on telling how claims ended until control has heard of it."""

    def __init__(self, api: ControlApi, journal: Journal) -> None:
        self._api = api
        self._journal = journal
        self._unsent: dict[ClaimEnding, asyncio.Future[None]] = {}
        self._has_unsent = asyncio.Event()
        for ending in journal.recovered_claims:
            self.end(ending)

    @property
    def unsent_count(self) -> int:
        """The number of endings that control has yet to acknowledge."""
        return len(self._unsent)

    async def claim(self, claim: IdempotencyClaim) -> Verdict:
        """Ask to be the one request of a key. Raises ClaimStateUnknown, and JournalUnavailable."""
        await self._journal.record_claim(claim.event_id, claim.organization_id)
        try:
            reply = await self._api.post(CLAIMS, claim, ClaimReply, CLAIM_SECONDS)
        except InternalCallError as error:
            log.warning("idempotency_key_not_claimed", error=str(error))
            self.end(ClaimEnding(claim.organization_id, claim.event_id, is_completed=False))
            raise ClaimStateUnknown from error
        if not isinstance(reply.verdict, ClaimGrant):
            self._journal.forget_claims([claim.event_id])
        return reply.verdict

    async def store_response(self, claim: IdempotencyClaim, sealed: bytes | None) -> bool:
        """Have an answer kept, and tell whether it is the one of its key. Raises
        ClaimStateUnknown."""
        try:
            async with asyncio.timeout(KEEP_SECONDS):
                return await self._store_response(StoreResponse(claim, sealed))
        except TimeoutError:
            raise ClaimStateUnknown from None

    def end(self, ending: ClaimEnding) -> asyncio.Future[None]:
        """Tell control how a claim ended; return what is done when it has heard of it."""
        if ending not in self._unsent:
            self._unsent[ending] = asyncio.get_running_loop().create_future()
            self._has_unsent.set()
        return self._unsent[ending]

    async def run(self) -> None:
        """Tell control for ever; an outage is waited out."""
        pause_seconds = AGAIN_SECONDS
        while True:
            await self._has_unsent.wait()
            try:
                await self.send_endings()
                pause_seconds = AGAIN_SECONDS
            except InternalCallError as error:
                log.warning("idempotency_keys_not_ended", error=str(error))
                await asyncio.sleep(pause_seconds)
                pause_seconds = min(BACKOFF_MAX_SECONDS, 2 * pause_seconds)

    async def send_endings(self) -> None:
        """Send control all there is. Raises InternalCallError."""
        while page := tuple(self._unsent)[:ENDINGS_MAX]:
            await self._api.post(ENDINGS, ClaimEndings(page), ClaimEndingsReply, END_SECONDS)
            self._forget(page)
        self._has_unsent.clear()

    def _forget(self, page: Iterable[ClaimEnding]) -> None:
        self._journal.forget_claims([ending.event_id for ending in page])
        for ending in page:
            self._unsent.pop(ending).set_result(None)

    async def _store_response(self, answer: StoreResponse) -> bool:
        while True:
            try:
                reply = await self._api.post(ANSWERS, answer, StoreResponseReply, KEEP_TRY_SECONDS)
                return reply.is_kept
            except InternalCallError as error:
                log.warning("answer_not_kept", error=str(error))
                await asyncio.sleep(AGAIN_SECONDS)
