"""Others who ask for what is being answered: they are told the same, as it comes."""

from serving.gateway.conversation import ClientGone, Conversation
from serving.gateway.errors import Headers
from serving.gateway.idempotency import refusals
from serving.gateway.idempotency.turn import Turn


def again(headers: Headers, event_id: str) -> Headers:
    """Return the head of an answer that is another request's."""
    ours = ((b"idempotent-replayed", b"true"), (b"original-request", event_id.encode()))
    return [*headers, *ours]


async def join(conversation: Conversation, turn: Turn) -> bool:
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
    def __init__(self, conversation: Conversation, turn: Turn) -> None:
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
                raise ClientGone
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
            raise refusals.came_to_nothing()
        return False
