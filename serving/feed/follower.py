"""Following a feed for ever: ask, sort out, hand on; back off with jitter when it is down."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from serving.backoff import Backoff
from serving.contract.codec import ContractError, decode
from serving.contract.feed import Page
from serving.feed.ahead import Ahead
from serving.feed.batch import Batch, Kinds, parts
from serving.feed.source import BEGINNING, FeedUnavailable, Fetch, Place, SnapshotGone

log = structlog.get_logger(__name__)

BACKOFF_FIRST_SECONDS = 0.1
BACKOFF_MAX_SECONDS = 5.0
EMPTY_ANSWER_SECONDS = 0.5
"""An answer without news that came sooner than this did not wait: pause, or we would spin."""


@dataclass(slots=True)
class Counts:
    """What a metric should show of a follower."""

    failures: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)


class Follower:
    """Follows one feed from a `place` on; one reader at a time.

    `contact_at` is the monotonic time of the last answer, None before the first.
    """

    def __init__(
        self,
        fetch: Fetch,
        kinds: Kinds,
        *,
        place: Place = BEGINNING,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.kinds = kinds
        self.place = place
        self.contact_at: float | None = None
        self.counts = Counts()
        self._ahead = Ahead(fetch)
        self._sleep = sleep
        self._clock = clock
        self._backoff = Backoff(BACKOFF_FIRST_SECONDS, BACKOFF_MAX_SECONDS, jitter)

    def start_over(self) -> None:
        """Ask for everything again, and leave aside what is being answered."""
        self.place = Place(0, self.place.lineage)

    async def batches(self) -> AsyncIterator[Batch]:
        """Yield every batch of news, without end; trouble is logged, counted and waited out.

        The loop is let go between two batches.
        """
        try:
            async for batch in self._batches():
                yield batch
        finally:
            self._ahead.forget()

    async def _batches(self) -> AsyncIterator[Batch]:
        failures_in_a_row = 0
        while True:
            asked, asked_at = self.place, self._clock()
            try:
                page = decode(await self._ahead.answer(asked), Page)
            except (FeedUnavailable, ContractError) as error:
                if isinstance(error, SnapshotGone):
                    self.start_over()
                self.counts.failures += 1
                failures_in_a_row += 1
                log.warning("feed_unavailable", error=str(error), in_a_row=failures_in_a_row)
                await self._sleep(self._backoff.pause_seconds(failures_in_a_row))
                continue
            failures_in_a_row = 0
            self.contact_at = self._clock()
            if self._is_news(page, asked):
                self._go_on_from(page)
                if page.cursor:
                    self._ahead.ask(self.place)
                await asyncio.sleep(0)
                for batch in parts(page, self.kinds, begins=not asked.cursor):
                    self._note(batch)
                    yield batch
                    await asyncio.sleep(0)
            elif self.contact_at - asked_at < EMPTY_ANSWER_SECONDS:
                await self._sleep(EMPTY_ANSWER_SECONDS)

    def _is_news(self, page: Page, asked: Place) -> bool:
        if self.place is not asked:
            return False
        is_of_another = page.version < asked.version or page.lineage != asked.lineage
        if asked.cursor and (is_of_another or not page.snapshot or page.version != asked.version):
            self.start_over()
            return False
        if is_of_another and not page.snapshot:
            # The publisher went back in time (restored, or started anew): take everything again.
            self.place = Place(0, page.lineage)
            return False
        return page.snapshot or page.version != asked.version or bool(page.changes)

    def _go_on_from(self, page: Page) -> None:
        if self.place.lineage not in ("", page.lineage):
            log.warning("feed_of_another_lineage", lineage=page.lineage, before=self.place.lineage)
        self.place = Place(page.version, page.lineage, page.cursor)

    def _note(self, batch: Batch) -> None:
        self.counts.unknown.update(batch.unknown_kinds)
        for bad in batch.rejected:
            self.counts.rejected[bad.kind] += 1
            log.error("feed_record_rejected", kind=bad.kind, id=bad.id, reason=bad.reason)
