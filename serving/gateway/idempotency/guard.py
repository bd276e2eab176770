"""One execution of each idempotency key: a request runs, joins the one that does, or is answered
with what is stored."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import structlog

from serving.contract.idempotency import (
    HEADER,
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
from serving.gateway import errors
from serving.gateway.auth import Principal
from serving.gateway.conversation import ClientDisconnected, Conversation
from serving.gateway.errors import ApiError, Headers
from serving.gateway.http.write_buffer import ResponseWriter
from serving.gateway.idempotency.execution import (
    ALL_COPIES_BYTES_MAX,
    IdempotentExecution,
    RecordingWriter,
    ResponseRecording,
)
from serving.gateway.idempotency.keys import (
    DecryptionFailed,
    IdempotentRequest,
    read_wish,
    unseal,
)
from serving.pool.overload import SharedCapacity
from serving.usage.claims import ClaimStateUnknown, IdempotencyClaims
from serving.usage.journal_writer import JournalUnavailable

log = structlog.get_logger(__name__)


def again(headers: Headers, event_id: str) -> Headers:
    """Return the head of an answer that is another request's."""
    ours = ((b"idempotent-replayed", b"true"), (b"original-request", event_id.encode()))
    return [*headers, *ours]


async def join(conversation: Conversation, turn: IdempotentExecution) -> bool:
    """Tell a client what another is told; return False where that came to nothing, and this one was
    told nothing yet. Raises ClientGone, and ApiError where it was."""
    follower = _Follower(conversation, turn)
    conversation.watch(follower.hang_up)
    try:
        return await follower.follow()
    finally:
        conversation.unwatch()
        follower.leave()


class _Follower:
    def __init__(self, conversation: Conversation, turn: IdempotentExecution) -> None:
        self._conversation = conversation
        self._turn = turn
        self._copy = turn.copy
        self._told = 0
        self._is_gone = False
        self._bell = self._copy.enter()

    def hang_up(self) -> None:
        """Hear that the client left."""
        self._is_gone = True
        self._bell.set()

    def leave(self) -> None:
        """Follow no more."""
        self._copy.leave(self._bell)

    async def follow(self) -> bool:
        copy = self._copy
        while True:
            self._bell.clear()
            if self._is_gone:
                raise ClientDisconnected
            if not copy.is_too_long:
                await self._tell_pieces()
            if copy.tail is not None and not copy.is_too_long:
                await self._tell_end(copy.tail)
                return True
            if copy.is_over:
                return self._come_to_nothing()
            await self._bell.wait()

    async def _tell_pieces(self) -> None:
        while fresh := self._copy.pieces[self._told :]:
            self._begin()
            self._told += len(fresh)
            await self._conversation.tell(b"".join(fresh))

    async def _tell_end(self, tail: bytes) -> None:
        if self._conversation.has_begun:
            await self._conversation.finish(tail)
        else:
            await self._conversation.reply(200, tail, self._headers)

    def _begin(self) -> None:
        if not self._conversation.has_begun:
            self._conversation.rendering = self._turn.leader.rendering
            self._conversation.begin(200, self._headers)

    @property
    def _headers(self) -> Headers:
        return again(self._copy.headers or (), self._turn.claim.event_id)

    def _come_to_nothing(self) -> bool:
        if self._conversation.has_begun:
            raise errors.came_to_nothing()
        return False


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
Work = Callable[[IdempotentExecution], Awaitable[None]]
"""Answers the request, its answer being kept by the turn. Raises ApiError."""


class IdempotencyGuard:
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
        self._turns: dict[str, IdempotentExecution] = {}
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

    async def _join_others(self, conversation: Conversation, wish: IdempotentRequest) -> bool:
        """Return whether a client was told what others of its key were; the key is free if not."""
        for _ in range(TURNS_MAX):
            turn = self._turns.get(wish.key_digest)
            if turn is None:
                return False
            if turn.wish.request_digest != wish.request_digest:
                self._endings["other_request"] += 1
                raise errors.other_request()
            if turn.copy.may_be_followed and await join(conversation, turn):
                return True
            await _wait(conversation, turn)
        if wish.key_digest in self._turns:
            raise errors.still_running()
        return False

    async def _take(
        self, turn: IdempotentExecution, conversation: Conversation, work: Work
    ) -> None:
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
    ) -> IdempotentRequest:
        check_taken(principal)
        return await read_wish(
            self._pepper,
            key=conversation.header(RAW_HEADER),
            organization_id=principal.organization_id,
            path=conversation.path,
            body=body,
        )

    def _new_turn(
        self, conversation: Conversation, principal: Principal, wish: IdempotentRequest
    ) -> IdempotentExecution:
        claim = IdempotencyClaim(
            event_id=conversation.request_id,
            gateway_id=self._gateway_id,
            organization_id=principal.organization_id,
            key_digest=wish.key_digest,
            request_digest=wish.request_digest,
        )
        copy = ResponseRecording(self._copies, claim.organization_id, principal.organization.weight)
        return IdempotentExecution(wish, claim, conversation, self._claims, copy)

    async def _claim(self, turn: IdempotentExecution) -> Verdict:
        try:
            return await self._claims.claim(turn.claim)
        except (ClaimStateUnknown, JournalUnavailable):
            self._endings["unavailable"] += 1
            raise errors.unavailable() from None

    def _end(self, turn: IdempotentExecution, *, is_ours: bool) -> None:
        """Let the next one try, once control knows that this one is over."""
        turn.copy.end()
        task = asyncio.create_task(self._leave(turn, is_ours=is_ours))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _leave(self, turn: IdempotentExecution, *, is_ours: bool) -> None:
        if is_ours:
            await turn.end()
        del self._turns[turn.wish.key_digest]
        turn.over.set_result(None)


def _copied(
    conversation: Conversation, copy: ResponseRecording, outlet: ResponseWriter
) -> ResponseWriter:
    return RecordingWriter(outlet, conversation, copy)


def check_taken(principal: Principal) -> None:
    """Raise BadRequest where the organization takes no idempotency keys."""
    if not principal.organization.takes_idempotency_keys:
        raise errors.not_taken()


async def _wait(conversation: Conversation, turn: IdempotentExecution) -> None:
    """Wait until another request is over, which has deadlines of its own. Raises ClientGone."""
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    conversation.watch(lambda: None if gone.done() else gone.set_result(None))
    try:
        await asyncio.wait({turn.over, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        conversation.unwatch()
    if gone.done():
        raise ClientDisconnected


async def _tell(conversation: Conversation, wish: IdempotentRequest, verdict: Verdict) -> None:
    """Give the answer there is. Raises ApiError where there is none."""
    if not isinstance(verdict, ClaimReplay) or verdict.sealed is None:
        raise _refusal(verdict)
    event_id = verdict.event_id
    conversation.hold(len(verdict.sealed))
    try:
        answer = await asyncio.to_thread(unseal, verdict.sealed, key=wish.seal, event_id=event_id)
    except DecryptionFailed:
        log.error("kept_answer_unreadable", event_id=event_id)
        raise errors.answer_lost() from None
    conversation.hold(len(answer.body))
    await conversation.reply(200, answer.body, again(answer.headers, event_id))


def _refusal(verdict: Verdict) -> ApiError:
    match verdict:
        case ClaimInProgress():
            return errors.still_running()
        case ClaimConflict():
            return errors.other_request()
        case ClaimReplay():
            return errors.answer_lost()
        case ClaimDisabled():
            return errors.not_taken()
        case ClaimStorageFull():
            return errors.no_room(verdict)
        case _:
            return errors.unavailable()
