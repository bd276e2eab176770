"""Following a feed for ever: ask, sort out, hand on; back off with jitter when it is down."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from serving.contract.codec import ContractError, decode
from serving.contract.feed import Page
from serving.feed.batch import Batch, Kinds, sort_out
from serving.feed.source import FeedUnavailable, Fetch

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
    """Follows one feed from a `version` of a `lineage` on; one reader at a time.

    `contact_at` is the monotonic time of the last answer, None before the first.
    """

    def __init__(
        self,
        fetch: Fetch,
        kinds: Kinds,
        *,
        version: int = 0,
        lineage: str = "",
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.fetch = fetch
        self.kinds = kinds
        self.version = version
        self.lineage = lineage
        self.contact_at: float | None = None
        self.counts = Counts()
        self._sleep = sleep
        self._clock = clock
        self._jitter = jitter

    async def batches(self) -> AsyncIterator[Batch]:
        """Yield every batch of news, without end; trouble is logged, counted and waited out."""
        failures_in_a_row = 0
        while True:
            asked_at = self._clock()
            try:
                page = decode(await self.fetch(self.version, self.lineage), Page)
            except (FeedUnavailable, ContractError) as error:
                self.counts.failures += 1
                failures_in_a_row += 1
                log.warning("feed_unavailable", error=str(error), in_a_row=failures_in_a_row)
                await self._sleep(self._pause_seconds(failures_in_a_row))
                continue
            failures_in_a_row = 0
            self.contact_at = self._clock()
            if self._is_news(page):
                yield self._accept(page)
            elif self.contact_at - asked_at < EMPTY_ANSWER_SECONDS:
                await self._sleep(EMPTY_ANSWER_SECONDS)

    def _is_news(self, page: Page) -> bool:
        is_of_another = page.version < self.version or page.lineage != self.lineage
        if is_of_another and not page.snapshot:
            # The publisher went back in time (restored, or started anew): take everything again.
            self.version, self.lineage = 0, page.lineage
            return False
        return page.snapshot or page.version != self.version or bool(page.changes)

    def _accept(self, page: Page) -> Batch:
        batch = sort_out(page, self.kinds)
        if self.lineage not in ("", batch.lineage):
            log.warning("feed_of_another_lineage", lineage=batch.lineage, before=self.lineage)
        self.version, self.lineage = batch.version, batch.lineage
        self.counts.unknown.update(batch.unknown_kinds)
        for bad in batch.rejected:
            self.counts.rejected[bad.kind] += 1
            log.error("feed_record_rejected", kind=bad.kind, id=bad.id, reason=bad.reason)
        return batch

    def _pause_seconds(self, failures_in_a_row: int) -> float:
        doubled = BACKOFF_FIRST_SECONDS * 2 ** min(failures_in_a_row - 1, 10)
        whole = min(BACKOFF_MAX_SECONDS, doubled)
        return whole * (0.5 + self._jitter() / 2)
