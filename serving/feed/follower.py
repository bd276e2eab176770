"""A feed, followed: long polls over HTTP, the next page asked for while one is applied, and its
changes handed on in batches."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass, field

import aiohttp
import structlog

from serving.contract.codec import ContractError, decode
from serving.contract.feed import FeedPage
from serving.feed.changes import ChangeBatch, Kinds, parts
from serving.internal_http import Backoff

log = structlog.get_logger(__name__)


CONNECT_SECONDS = 2.0
READ_SECONDS = 40.0
"""A feed waits up to 25 s for news; silence beyond this is a dead connection."""
PAGE_CHANGES = 1_500
"""One page of a snapshot: less than 1 MB, which is parsed within 2 ms."""
GONE = 410


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """A reader's position: at a version of a lineage, or, with a cursor, into a snapshot."""

    version: int
    lineage: str
    cursor: str = ""


BEGINNING = FeedPosition(0, "")
Fetch = Callable[[FeedPosition], Awaitable[bytes]]
"""Asks for what comes after a place; returns the answer's body, a `Page` in JSON."""


class FeedUnavailable(Exception):
    """The feed did not answer with a page: ask again later."""


class SnapshotExpired(FeedUnavailable):
    """The feed does not go on with a snapshot that it began: ask for a new one."""


class FeedSource:
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

    async def __call__(self, position: FeedPosition) -> bytes:
        """Return the page after a position. Raises FeedUnavailable."""
        asked = {"after": str(position.version), "lineage": position.lineage}
        if position.cursor:
            asked["cursor"] = position.cursor
        try:
            async with self.session.get(
                self.url,
                params=self.params | asked,
                headers=self.headers,
                timeout=self.timeout,
                allow_redirects=False,
            ) as answer:
                if answer.status == GONE:
                    raise SnapshotExpired(f"{self.url} does not go on with its snapshot")
                if answer.status != 200:
                    raise FeedUnavailable(f"{self.url} answered {answer.status}")
                # `read()` would let a whole page in without letting the loop go between its parts.
                return b"".join([part async for part in answer.content.iter_any()])
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise FeedUnavailable(f"{self.url}: {type(error).__name__}: {error}") from error


class PagePrefetch:
    """One question at a time that somebody will ask."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._position: FeedPosition | None = None
        self._answer: asyncio.Task[bytes] | None = None

    def start(self, position: FeedPosition) -> None:
        """Ask now for the page after a position."""
        self.cancel()
        self._position = position
        self._answer = asyncio.get_running_loop().create_task(_call(self._fetch, position))
        self._answer.add_done_callback(_look_at)

    async def get(self, position: FeedPosition) -> bytes:
        """Return the page after a position, asked for ahead or now. Raises FeedUnavailable."""
        answer, was_for = self._answer, self._position
        if answer is None or was_for != position:
            self.cancel()
            return await self._fetch(position)
        self._answer = None
        return await answer

    def cancel(self) -> None:
        """Nobody will ask any more."""
        if self._answer is not None:
            self._answer.cancel()
            self._answer = None


async def _call(fetch: Fetch, position: FeedPosition) -> bytes:
    return await fetch(position)


def _look_at(answer: asyncio.Task[bytes]) -> None:
    """An answer that nobody wants any more may be an error."""
    if not answer.cancelled():
        answer.exception()


BACKOFF_FIRST_SECONDS = 0.1
BACKOFF_MAX_SECONDS = 5.0
EMPTY_ANSWER_SECONDS = 0.5
"""An answer without news that came sooner than this did not wait: pause, or we would spin."""


@dataclass(slots=True)
class FollowerStats:
    """Counts of a follower, for metrics."""

    failures: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)


class FeedFollower:
    """Follows one feed from a `position` on; one reader at a time.

    `contact_at` is the monotonic time of the last answer, None before the first.
    """

    def __init__(
        self,
        fetch: Fetch,
        kinds: Kinds,
        *,
        position: FeedPosition = BEGINNING,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.kinds = kinds
        self.position = position
        self.contact_at: float | None = None
        self.counts = FollowerStats()
        self._prefetch = PagePrefetch(fetch)
        self._sleep = sleep
        self._clock = clock
        self._backoff = Backoff(BACKOFF_FIRST_SECONDS, BACKOFF_MAX_SECONDS, jitter)

    def start_over(self) -> None:
        """Ask for everything again, and leave aside what is being answered."""
        self.position = FeedPosition(0, self.position.lineage)

    async def batches(self) -> AsyncIterator[ChangeBatch]:
        """Yield every batch of news, without end; trouble is logged, counted and waited out.

        The loop is let go between two batches.
        """
        try:
            async for batch in self._batches():
                yield batch
        finally:
            self._prefetch.cancel()

    async def _batches(self) -> AsyncIterator[ChangeBatch]:
        failures_in_a_row = 0
        while True:
            asked, asked_at = self.position, self._clock()
            try:
                page = decode(await self._prefetch.get(asked), FeedPage)
            except (FeedUnavailable, ContractError) as error:
                if isinstance(error, SnapshotExpired):
                    self.start_over()
                self.counts.failures += 1
                failures_in_a_row += 1
                log.warning("feed_unavailable", error=str(error), in_a_row=failures_in_a_row)
                await self._sleep(self._backoff.pause_seconds(failures_in_a_row))
                continue
            failures_in_a_row = 0
            self.contact_at = self._clock()
            if self._is_news(page, asked):
                self._advance_to(page)
                if page.cursor:
                    self._prefetch.start(self.position)
                await asyncio.sleep(0)
                for batch in parts(page, self.kinds, begins=not asked.cursor):
                    self._count(batch)
                    yield batch
                    await asyncio.sleep(0)
            elif self.contact_at - asked_at < EMPTY_ANSWER_SECONDS:
                await self._sleep(EMPTY_ANSWER_SECONDS)

    def _is_news(self, page: FeedPage, asked: FeedPosition) -> bool:
        if self.position is not asked:
            return False
        is_of_another = page.version < asked.version or page.lineage != asked.lineage
        if asked.cursor and (is_of_another or not page.snapshot or page.version != asked.version):
            self.start_over()
            return False
        if is_of_another and not page.snapshot:
            # The publisher went back in time (restored, or started anew): take everything again.
            self.position = FeedPosition(0, page.lineage)
            return False
        return page.snapshot or page.version != asked.version or bool(page.changes)

    def _advance_to(self, page: FeedPage) -> None:
        if self.position.lineage not in ("", page.lineage):
            log.warning(
                "feed_of_another_lineage", lineage=page.lineage, before=self.position.lineage
            )
        self.position = FeedPosition(page.version, page.lineage, page.cursor)

    def _count(self, batch: ChangeBatch) -> None:
        self.counts.unknown.update(batch.unknown_kinds)
        for bad in batch.rejected:
            self.counts.rejected[bad.kind] += 1
            log.error("feed_record_rejected", kind=bad.kind, id=bad.id, reason=bad.reason)
