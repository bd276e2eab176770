"""The next page of a snapshot, asked for while the one before is taken in."""

import asyncio

from serving.feed.source import Fetch, Place


class Ahead:
    """One question at a time that somebody will ask."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._place: Place | None = None
        self._answer: asyncio.Task[bytes] | None = None

    def ask(self, place: Place) -> None:
        """Ask now for what comes after a place."""
        self.forget()
        self._place = place
        self._answer = asyncio.get_running_loop().create_task(_call(self._fetch, place))
        self._answer.add_done_callback(_look_at)

    async def answer(self, place: Place) -> bytes:
        """Return what comes after a place, asked for ahead or now. Raises FeedUnavailable."""
        answer, was_for = self._answer, self._place
        if answer is None or was_for != place:
            self.forget()
            return await self._fetch(place)
        self._answer = None
        return await answer

    def forget(self) -> None:
        """Nobody will ask any more."""
        if self._answer is not None:
            self._answer.cancel()
            self._answer = None


async def _call(fetch: Fetch, place: Place) -> bytes:
    return await fetch(place)


def _look_at(answer: asyncio.Task[bytes]) -> None:
    """An answer that nobody wants any more may be an error."""
    if not answer.cancelled():
        answer.exception()
