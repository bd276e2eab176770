"""The running execution of an idempotency key, and the recording of its answer: for control to
keep, and for others who ask for the same."""

import asyncio
from collections.abc import Awaitable, Callable

from serving.contract.idempotency import ClaimEnding, IdempotencyClaim
from serving.gateway.errors import Headers, ServiceUnavailable
from serving.gateway.http.response import HttpResponse
from serving.gateway.http.write_buffer import ClientTooSlow, ResponseWriter
from serving.gateway.idempotency.keys import IdempotentRequest, StoredResponse, seal
from serving.pool.overload import Holder, SharedCapacity
from serving.usage.claims import ClaimStateUnknown, IdempotencyClaims
from serving.usage.journal_writer import JournalUnavailable

COPY_BYTES_MAX = 16 * 1024 * 1024
"""Of one answer; the copy of a longer one is dropped, and it cannot be given again."""
ALL_COPIES_BYTES_MAX = 256 * 1024 * 1024
"""Of which an organization may hold as much as it leaves to others."""


class ResponseRecording:
    """One answer as it comes. It is complete once its usage is durable, and over whatever became of
    it: those who wait for more are woken by either, and by each piece."""

    def __init__(self, room: SharedCapacity, holder: Holder) -> None:
        self.pieces: list[bytes] = []
        """Until nobody reads them any more."""
        self.headers: Headers | None = None
        self.final_bytes: bytes | None = None
        """The end, once it may be told."""
        self.is_over = False
        self.is_too_long = False
        self._room = room
        self._holder = holder
        self._bytes = 0
        self._waiters: set[asyncio.Event] = set()
        self._when_alone: Callable[[], None] | None = None

    def add(self, headers: Headers, data: bytes) -> None:
        """Take a piece of the body; `headers` stand in its head besides our own."""
        if self.is_too_long:
            return
        self.headers, size = headers, len(data)
        fits = self._room.fits(self._holder, size)
        if fits and self._bytes + size <= COPY_BYTES_MAX:
            self.pieces.append(data)
            self._bytes += size
            self._room.add(self._holder, size)
        else:
            self.is_too_long = True
            self._drop()
        self._notify()

    def complete(self, headers: Headers, final_bytes: bytes) -> None:
        """Let the end be told."""
        self.headers, self.final_bytes = headers, final_bytes
        self._notify()

    def end(self) -> None:
        """Nothing more comes. Who still reads goes on reading the pieces there were."""
        self.is_over = True
        if not self._waiters:
            self._drop()
        self._notify()

    def outlives(self, client_gone: Callable[[], None]) -> bool:
        """Tell whether others follow, though the client who asked first is gone; the last of them
        to leave says so."""
        self._when_alone = client_gone
        return self.is_followed

    def unwatch(self) -> None:
        """Let who follows go as they like: the work is done."""
        self._when_alone = None

    @property
    def is_followed(self) -> bool:
        """Whether others read it too."""
        return bool(self._waiters)

    @property
    def may_be_followed(self) -> bool:
        """Whether more comes, or all of it is here: not where the client who asked first is gone
        and nobody follows."""
        is_left = self._when_alone is not None and not self._waiters
        return not self.is_over and not is_left

    def subscribe(self) -> asyncio.Event:
        """Follow; what is returned is set when there is more to read."""
        bell = asyncio.Event()
        self._waiters.add(bell)
        return bell

    def unsubscribe(self, bell: asyncio.Event) -> None:
        """End what `subscribe` began."""
        self._waiters.discard(bell)
        if self._waiters:
            return
        if self.is_over:
            self._drop()
        if self._when_alone is not None:
            self._when_alone()

    def _notify(self) -> None:
        for bell in self._waiters:
            bell.set()

    def _drop(self) -> None:
        self._room.add(self._holder, -self._bytes)
        self._bytes = 0
        self.pieces.clear()


class RecordingWriter:
    """The way out to the client who asked first. Where that one takes no more, others may."""

    def __init__(
        self, response: HttpResponse, copy: ResponseRecording, outlet: ResponseWriter
    ) -> None:
        self._outlet = outlet
        self._response = response
        self._copy = copy
        self._is_cut = False

    def put(self, data: bytes) -> None:
        """Copy a piece, and send it. Raises ClientTooSlow."""
        self._copy.add(self._response.headers, data)
        if self._is_cut:
            return
        try:
            self._outlet.put(data)
        except ClientTooSlow:
            if not self._copy.is_followed:
                raise
            self.abort()

    async def flush(self) -> None:
        """Wait until all was taken. Raises ClientTooSlow."""
        if not self._is_cut:
            await self._outlet.flush()

    def abort(self) -> None:
        """Close the connection at once."""
        self._is_cut = True
        self._outlet.abort()

    def drop(self) -> None:
        """Forget what waits."""
        self._outlet.drop()


TELL_SECONDS = 2.0
"""How long others of the same key wait for control to hear how this request ended."""


class IdempotentExecution:
    """Copies what its client, the leader, is told, and has it kept."""

    def __init__(
        self,
        keyed_request: IdempotentRequest,
        claim: IdempotencyClaim,
        leader: HttpResponse,
        claims: IdempotencyClaims,
        copy: ResponseRecording,
    ) -> None:
        self.keyed_request = keyed_request
        self.claim = claim
        self.leader = leader
        self.recording = copy
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when another of the same key may try."""
        self._claims = claims
        self._is_completed: bool | None = False
        """None while that is being made durable: should we end meanwhile, the journal knows."""

    async def store(self, headers: Headers, final_bytes: bytes) -> None:
        """Have control keep the answer, with the end that its client has yet to see.

        Raises ServiceUnavailable unless it is kept: then the request must not complete.
        """
        sealed = None if self.recording.is_too_long else await self._sealed(headers, final_bytes)
        try:
            is_kept = await self._claims.store_response(self.claim, sealed)
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

    async def _sealed(self, headers: Headers, final_bytes: bytes) -> bytes | None:
        answer = StoredResponse(tuple(headers), b"".join((*self.recording.pieces, final_bytes)))
        return await asyncio.to_thread(
            seal, answer, key=self.keyed_request.seal, event_id=self.claim.event_id
        )


def not_kept() -> ServiceUnavailable:
    """Return the error for an answer that could not be kept, and is not charged."""
    message = "Your answer could not be kept for its Idempotency-Key; it is not charged. Try again."
    return ServiceUnavailable(message, code="idempotency_unavailable")
