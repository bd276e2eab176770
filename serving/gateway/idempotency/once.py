"""A request with an idempotency key, from its wish to an answer: its own, or the one there is."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import structlog

from serving.contract.idempotency import (
    ClaimClosed,
    ClaimConflict,
    ClaimDisabled,
    ClaimGrant,
    ClaimInProgress,
    ClaimReplay,
    ClaimStorageFull,
    IdempotencyClaim,
    Verdict,
)
from serving.gateway.conversation import ClientGone, Conversation
from serving.gateway.errors import ApiError
from serving.gateway.idempotency import refusals
from serving.gateway.idempotency.copy import ALL_COPIES_BYTES_MAX, Copy, Copying
from serving.gateway.idempotency.joining import again, join
from serving.gateway.idempotency.sealing import SealBroken, unseal
from serving.gateway.idempotency.turn import Turn
from serving.gateway.idempotency.wish import HEADER, Wish, read_wish
from serving.gateway.outgoing import Outlet
from serving.gateway.principals import Principal
from serving.pool.overload import SharedCapacity
from serving.usage.claims import ClaimStateUnknown, IdempotencyClaims
from serving.usage.journal_writer import JournalUnavailable

log = structlog.get_logger(__name__)

RAW_HEADER = HEADER.lower().encode()
TURNS_MAX = 2
"""How many requests of its key a client waits for that come to nothing."""
ENDINGS: dict[type[Verdict], str] = {
    ClaimGrant: "worked_on",
    ClaimReplay: "given_again",
    ClaimInProgress: "running_elsewhere",
    ClaimConflict: "other_request",
    ClaimStorageFull: "no_room",
    ClaimDisabled: "turned_off",
    ClaimClosed: "unavailable",
}
Work = Callable[[Turn], Awaitable[None]]
"""Answers the request, its answer being kept by the turn. Raises ApiError."""


class Once:
    """Lets one request of each key work at a time. `endings` counts what became of requests."""

    def __init__(
        self,
        claims: IdempotencyClaims,
        endings: Counter[str],
        *,
        gateway_id: str,
        pepper: str,
        copies_bytes_max: int = ALL_COPIES_BYTES_MAX,
    ) -> None:
        self._claims = claims
        self._endings = endings
        self._gateway_id = gateway_id
        self._pepper = pepper.encode()
        self._turns: dict[str, Turn] = {}
        self._copies = SharedCapacity(copies_bytes_max)
        self._leaving: set[asyncio.Task[None]] = set()

    async def serve(
        self,
        conversation: Conversation,
        principal: Principal,
        body: Sequence[bytes],
        work: Work,
    ) -> None:
        """Do the work if it was not done, else give its answer. Raises ApiError, ClientGone."""
        wish = await self._wish(conversation, principal, body)
        if await self._join_others(conversation, wish):
            self._endings["joined"] += 1
            return
        turn = self._turns[wish.key_digest] = self._new_turn(conversation, principal, wish)
        await self._take(turn, conversation, work)

    async def _join_others(self, conversation: Conversation, wish: Wish) -> bool:
        """Return whether a client was told what others of its key were; the key is free if not."""
        for _ in range(TURNS_MAX):
            turn = self._turns.get(wish.key_digest)
            if turn is None:
                return False
            if turn.wish.request_digest != wish.request_digest:
                self._endings["other_request"] += 1
                raise refusals.other_request()
            if turn.copy.may_be_followed and await join(conversation, turn):
                return True
            await _wait(conversation, turn)
        if wish.key_digest in self._turns:
            raise refusals.still_running()
        return False

    async def _take(self, turn: Turn, conversation: Conversation, work: Work) -> None:
        is_ours = False
        try:
            verdict = await self._claim(turn)
            self._endings[ENDINGS[type(verdict)]] += 1
            is_ours = isinstance(verdict, ClaimGrant)
            if is_ours:
                conversation.send_through(partial(_copied, conversation, turn.copy))
                await work(turn)
        finally:
            self._end(turn, is_ours=is_ours)
        if not is_ours:
            await _tell(conversation, turn.wish, verdict)

    async def _wish(
        self, conversation: Conversation, principal: Principal, body: Sequence[bytes]
    ) -> Wish:
        check_taken(principal)
        return await read_wish(
            self._pepper,
            key=conversation.header(RAW_HEADER),
            organization_id=principal.organization_id,
            path=conversation.path,
            body=body,
        )

    def _new_turn(self, conversation: Conversation, principal: Principal, wish: Wish) -> Turn:
        claim = IdempotencyClaim(
            event_id=conversation.request_id,
            gateway_id=self._gateway_id,
            organization_id=principal.organization_id,
            key_digest=wish.key_digest,
            request_digest=wish.request_digest,
        )
        copy = Copy(self._copies, claim.organization_id, principal.organization.weight)
        return Turn(wish, claim, conversation, self._claims, copy)

    async def _claim(self, turn: Turn) -> Verdict:
        try:
            return await self._claims.claim(turn.claim)
        except (ClaimStateUnknown, JournalUnavailable):
            self._endings["unavailable"] += 1
            raise refusals.unavailable() from None

    def _end(self, turn: Turn, *, is_ours: bool) -> None:
        """Let the next one try, once control knows that this one is over."""
        turn.copy.end()
        task = asyncio.create_task(self._leave(turn, is_ours=is_ours))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _leave(self, turn: Turn, *, is_ours: bool) -> None:
        if is_ours:
            await turn.end()
        del self._turns[turn.wish.key_digest]
        turn.over.set_result(None)


def _copied(conversation: Conversation, copy: Copy, outlet: Outlet) -> Outlet:
    return Copying(outlet, conversation, copy)


def check_taken(principal: Principal) -> None:
    """Raise BadRequest where the organization takes no idempotency keys."""
    if not principal.organization.takes_idempotency_keys:
        raise refusals.not_taken()


async def _wait(conversation: Conversation, turn: Turn) -> None:
    """Wait until another request is over, which has deadlines of its own. Raises ClientGone."""
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    conversation.watch(lambda: None if gone.done() else gone.set_result(None))
    try:
        await asyncio.wait({turn.over, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        conversation.unwatch()
    if gone.done():
        raise ClientGone


async def _tell(conversation: Conversation, wish: Wish, verdict: Verdict) -> None:
    """Give the answer there is. Raises ApiError where there is none."""
    if not isinstance(verdict, ClaimReplay) or verdict.sealed is None:
        raise _refusal(verdict)
    event_id = verdict.event_id
    conversation.hold(len(verdict.sealed))
    try:
        answer = await asyncio.to_thread(unseal, verdict.sealed, key=wish.seal, event_id=event_id)
    except SealBroken:
        log.error("kept_answer_unreadable", event_id=event_id)
        raise refusals.answer_lost() from None
    conversation.hold(len(answer.body))
    await conversation.reply(200, answer.body, again(answer.headers, event_id))


def _refusal(verdict: Verdict) -> ApiError:
    match verdict:
        case ClaimInProgress():
            return refusals.still_running()
        case ClaimConflict():
            return refusals.other_request()
        case ClaimReplay():
            return refusals.answer_lost()
        case ClaimDisabled():
            return refusals.not_taken()
        case ClaimStorageFull():
            return refusals.no_room(verdict)
        case _:
            return refusals.unavailable()
