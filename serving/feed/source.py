"""One question to a feed over HTTP."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

import aiohttp

CONNECT_SECONDS = 2.0
READ_SECONDS = 40.0
"""A feed waits up to 25 s for news; silence beyond this is a dead connection."""
PAGE_CHANGES = 1_500
"""Of a snapshot, what is asked for at once: less than 1 MB, which is parsed within 2 ms."""
GONE = 410


@dataclass(frozen=True, slots=True)
class Place:
    """How far a reader has come: to a version of a lineage, or, with a cursor, into a snapshot."""

    version: int
    lineage: str
    cursor: str = ""


BEGINNING = Place(0, "")
Fetch = Callable[[Place], Awaitable[bytes]]
"""Asks for what comes after a place; returns the answer's body, a `Page` in JSON."""


class FeedUnavailable(Exception):
    """The feed did not answer with a page: ask again later."""


class SnapshotGone(FeedUnavailable):
    """The feed does not go on with a snapshot that it began: ask for a new one."""


class HttpSource:
    """Asks a feed at `url` with the internal secret as bearer, for all kinds or for some."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        credential: str,
        *,
        kinds: Collection[str] = (),
    ) -> None:
        self.session = session
        self.url = url
        self.headers = {"authorization": f"Bearer {credential}"}
        self.params = {"limit": str(PAGE_CHANGES)}
        if kinds:
            self.params["kinds"] = ",".join(kinds)
        self.timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS
        )

    async def __call__(self, place: Place) -> bytes:
        """Return the page after a place. Raises FeedUnavailable."""
        asked = {"after": str(place.version), "lineage": place.lineage}
        if place.cursor:
            asked["cursor"] = place.cursor
        try:
            async with self.session.get(
                self.url,
                params=self.params | asked,
                headers=self.headers,
                timeout=self.timeout,
                allow_redirects=False,
            ) as answer:
                if answer.status == GONE:
                    raise SnapshotGone(f"{self.url} does not go on with its snapshot")
                if answer.status != 200:
                    raise FeedUnavailable(f"{self.url} answered {answer.status}")
                # `read()` would let a whole page in without letting the loop go between its parts.
                return b"".join([part async for part in answer.content.iter_any()])
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise FeedUnavailable(f"{self.url}: {type(error).__name__}: {error}") from error
