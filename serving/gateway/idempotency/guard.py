"""One execution of each idempotency key: a request runs, joins the one that does, or is answered
with what is stored."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Protocol

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
from serving.gateway.errors import ApiError, Headers
from serving.gateway.http.request import HttpRequest
from serving.gateway.http.response import ClientDisconnected, HttpResponse
from serving.gateway.idempotency.execution import (
    ALL_COPIES_BYTES_MAX,
    IdempotentExecution,
    RecordingWriter,
    ResponseRecording,
)
from serving.gateway.idempotency.keys import (
    DecryptionFailed,
    IdempotentRequest,
    read_keyed_request,
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


async def join(response: HttpResponse, execution: IdempotentExecution) -> bool:
    """Tell a client what another is told; return False where that came to nothing, and this one was
    told nothing yet. Raises ClientDisconnected, and ApiError where it was."""
    follower = _Follower(response, execution)
    try:
        with response.on_disconnect(follower.hang_up):
            return await follower.follow()
    finally:
        follower.leave()


class _Follower:
    def __init__(self, response: HttpResponse, execution: IdempotentExecution) -> None:
        self._response = response
        self._execution = execution
        self._copy = execution.recording
        self._sent = 0
        self._is_gone = False
        self._update = self._copy.subscribe()

    def hang_up(self) -> None:
        """Hear that the client left."""
        self._is_gone = True
        self._update.set()

    def leave(self) -> None:
        """Follow no more."""
        self._copy.unsubscribe(self._update)

    async def follow(self) -> bool:
        copy = self._copy
        while True:
            self._update.clear()
            if self._is_gone:
                raise ClientDisconnected
            if not copy.is_too_long:
                await self._send_pieces()
            if copy.final_bytes is not None and not copy.is_too_long:
                await self._send_end(copy.final_bytes)
                return True
            if copy.is_over:
                return self._come_to_nothing()
            await self._update.wait()

    async def _send_pieces(self) -> None:
        while fresh := self._copy.pieces[self._sent :]:
            self._begin()
            self._sent += len(fresh)
            await self._response.write_all(b"".join(fresh))

    async def _send_end(self, tail: bytes) -> None:
        if self._response.has_started:
            await self._response.finish(tail)
        else:
            await self._response.send(200, tail, self._headers)

    def _begin(self) -> None:
        if not self._response.has_started:
            self._response.error_event = self._execution.leader.error_event
            self._response.start(200, self._headers)

    @property
    def _headers(self) -> Headers:
        return again(self._copy.headers or (), self._execution.claim.event_id)

    def _come_to_nothing(self) -> bool:
        if self._response.has_started:
            raise errors.came_to_nothing()
        return False


RAW_HEADER = HEADER.lower().encode()
EXECUTIONS_MAX = 2
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


class Serve(Protocol):
    """Answers the request, its answer being stored by the execution. Raises ApiError."""

    def __call__(self, *, execution: IdempotentExecution) -> Awaitable[None]:
        """Answer it."""


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
        self._executions: dict[str, IdempotentExecution] = {}
        self._recordings = SharedCapacity(copies_bytes_max)
        self._leaving: set[asyncio.Task[None]] = set()

    async def run_once(
        self,
        http: HttpRequest,
        response: HttpResponse,
        principal: Principal,
        body: Sequence[bytes],
        serve: Serve,
    ) -> None:
        """Do the work if it was not done, else give its answer. Raises ApiError,
        ClientDisconnected."""
        keyed_request = await self._keyed_request(http, principal, body)
        if await self._join_others(response, keyed_request):
            self._endings["joined"] += 1
            return
        execution = self._executions[keyed_request.key_digest] = self._new_execution(
            response, principal, keyed_request
        )
        await self._run(execution, http, response, serve)

    async def _join_others(self, response: HttpResponse, keyed_request: IdempotentRequest) -> bool:
        """Return whether a client was told what others of its key were; the key is free if not."""
        for _ in range(EXECUTIONS_MAX):
            execution = self._executions.get(keyed_request.key_digest)
            if execution is None:
                return False
            if execution.keyed_request.request_digest != keyed_request.request_digest:
                self._endings["other_request"] += 1
                raise errors.other_request()
            if execution.recording.may_be_followed and await join(response, execution):
                return True
            await _wait(response, execution)
        if keyed_request.key_digest in self._executions:
            raise errors.still_running()
        return False

    async def _run(
        self,
        execution: IdempotentExecution,
        http: HttpRequest,
        response: HttpResponse,
        serve: Serve,
    ) -> None:
        is_ours = False
        try:
            verdict = await self._claim(execution)
            self._endings[ENDINGS[type(verdict)]] += 1
            is_ours = isinstance(verdict, ClaimGrant)
            if is_ours:
                response.write_through(partial(RecordingWriter, response, execution.recording))
                await serve(execution=execution)
        finally:
            self._end(execution, is_ours=is_ours)
        if not is_ours:
            await _send_verdict(http, response, execution.keyed_request, verdict)

    async def _keyed_request(
        self, http: HttpRequest, principal: Principal, body: Sequence[bytes]
    ) -> IdempotentRequest:
        check_taken(principal)
        return await read_keyed_request(
            self._pepper,
            key=http.header(RAW_HEADER),
            organization_id=principal.organization_id,
            path=http.path,
            body=body,
        )

    def _new_execution(
        self, response: HttpResponse, principal: Principal, keyed_request: IdempotentRequest
    ) -> IdempotentExecution:
        claim = IdempotencyClaim(
            event_id=response.request_id,
            gateway_id=self._gateway_id,
            organization_id=principal.organization_id,
            key_digest=keyed_request.key_digest,
            request_digest=keyed_request.request_digest,
        )
        copy = ResponseRecording(self._recordings, principal.organization)
        return IdempotentExecution(keyed_request, claim, response, self._claims, copy)

    async def _claim(self, execution: IdempotentExecution) -> Verdict:
        try:
            return await self._claims.claim(execution.claim)
        except (ClaimStateUnknown, JournalUnavailable):
            self._endings["unavailable"] += 1
            raise errors.unavailable() from None

    def _end(self, execution: IdempotentExecution, *, is_ours: bool) -> None:
        """Let the next one try, once control knows that this one is over."""
        execution.recording.end()
        task = asyncio.create_task(self._leave(execution, is_ours=is_ours))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _leave(self, execution: IdempotentExecution, *, is_ours: bool) -> None:
        if is_ours:
            await execution.end()
        del self._executions[execution.keyed_request.key_digest]
        execution.finished.set_result(None)


def check_taken(principal: Principal) -> None:
    """Raise BadRequest where the organization takes no idempotency keys."""
    if not principal.organization.takes_idempotency_keys:
        raise errors.not_taken()


async def _wait(response: HttpResponse, execution: IdempotentExecution) -> None:
    """Wait until another request is over, which has deadlines of its own. Raises
    ClientDisconnected."""
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with response.on_disconnect(lambda: None if gone.done() else gone.set_result(None)):
        await asyncio.wait({execution.finished, gone}, return_when=asyncio.FIRST_COMPLETED)
    if gone.done():
        raise ClientDisconnected


async def _send_verdict(
    http: HttpRequest, response: HttpResponse, keyed_request: IdempotentRequest, verdict: Verdict
) -> None:
    """Give the answer there is. Raises ApiError where there is none."""
    if not isinstance(verdict, ClaimReplay) or verdict.sealed is None:
        raise _refusal(verdict)
    event_id = verdict.event_id
    http.hold(len(verdict.sealed))
    try:
        answer = await asyncio.to_thread(
            unseal, verdict.sealed, key=keyed_request.seal, event_id=event_id
        )
    except DecryptionFailed:
        log.error("kept_answer_unreadable", event_id=event_id)
        raise errors.answer_lost() from None
    http.hold(len(answer.body))
    await response.send(200, answer.body, again(answer.headers, event_id))


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
