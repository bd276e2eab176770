"""Shipping: batches of usage events to billing, again and again until acknowledged."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

import msgspec
import structlog

from serving.contract.usage import EVENTS_MAX, LeaseCharge, UsageBatch, UsageReceipt
from serving.internal_http import Backoff, InternalCallError, InternalHttpClient
from serving.usage.clock import wall_clock
from serving.usage.control_api import DatabaseIdentityCheck
from serving.usage.journal import Journal
from serving.usage.journal_store import FinishedEvent
from serving.usage.journal_writer import JournalUnavailable

log = structlog.get_logger(__name__)

Send = Callable[[UsageBatch], Awaitable[UsageReceipt]]
"""One call to billing. Raises ShipmentFailed."""

IDLE_SECONDS = 5.0
BACKOFF_FIRST_SECONDS = 0.2
BACKOFF_MAX_SECONDS = 5.0


SHIP_SECONDS = 30.0


class ShipmentFailed(Exception):
    """Billing did not acknowledge; `too_big` when a smaller batch might pass."""

    def __init__(self, reason: str, *, too_big: bool = False) -> None:
        super().__init__(reason)
        self.too_big = too_big


async def ship_batch(api: InternalHttpClient, batch: UsageBatch) -> UsageReceipt:
    """Hand a batch to billing. Raises ShipmentFailed."""
    try:
        return await api.post("usage-events", batch, UsageReceipt, SHIP_SECONDS)
    except InternalCallError as error:
        raise ShipmentFailed(str(error), too_big=error.status in (400, 413)) from error


@dataclass(slots=True)
class ShipperStats:
    """Counts of shipping, for metrics."""

    shipped: int = 0
    duplicates: int = 0
    dead_lettered: int = 0
    sent_again: int = 0
    failures: int = 0


class UsageShipper:
    """Empties the journal into billing, and fills a restored database again with what was kept.

    `wall` is the clock that event ids are made from; events gather for `gather_seconds` before a
    batch leaves.
    """

    def __init__(
        self,
        journal: Journal,
        send: Send,
        on_acknowledged: Callable[[list[LeaseCharge]], None],
        lineage: DatabaseIdentityCheck,
        *,
        wall: Callable[[], datetime] = wall_clock,
        jitter: Callable[[], float] = random.random,
        gather_seconds: float = 0.0,
    ) -> None:
        self.counts = ShipperStats()
        self._journal = journal
        self._send = send
        self._on_acknowledged = on_acknowledged
        self._lineage = lineage
        self._wall = wall
        self._gather_seconds = gather_seconds
        self._backoff = Backoff(BACKOFF_FIRST_SECONDS, BACKOFF_MAX_SECONDS, jitter)
        self._limit = EVENTS_MAX
        self._has_stale, self._stale_after = True, 0
        """Whether something kept may be unknown to the database of today, and the last batch
        that is not."""
        lineage.on_change(self._note_restored)

    async def run(self) -> None:
        """Ship for ever; an outage is waited out with jitter."""
        failures_in_a_row = 0
        while True:
            try:
                await self.ship_all()
                failures_in_a_row = 0
            except (ShipmentFailed, JournalUnavailable) as error:
                failures_in_a_row += 1
                self.counts.failures += 1
                log.warning("usage_not_shipped", error=str(error), in_a_row=failures_in_a_row)
                await asyncio.sleep(self._backoff.pause_seconds(failures_in_a_row))
                continue
            await self._wait_for_events()

    async def ship_all(self) -> None:
        """Ship until the journal has no finished event left that billing's database lacks.

        Raises ShipmentFailed, or JournalUnavailable when what is acknowledged cannot be put away.
        """
        while rows := await self._journal.next_finished(self._limit):
            await self._ship(rows)
            if len(rows) < self._limit:
                # Events that have come since may gather first, or a busy gateway ships one by one.
                break
        if self._has_stale:
            await self._ship_stale()

    async def ship_remaining(self) -> None:
        """Ship all there is of a journal that gets nothing new, kept events included.

        Raises ShipmentFailed or JournalUnavailable.
        """
        await self.ship_all()
        while self._has_stale and self._lineage.known:
            await self.ship_all()

    async def _ship(self, rows: list[FinishedEvent]) -> None:
        receipt = await self._hand_over([row.body for row in rows])
        await self._journal.archive(rows, receipt.lineage or self._lineage.known)
        self._on_acknowledged([charge for row in rows for charge in row.charges])

    async def _ship_stale(self) -> None:
        """Send one page of what only a database before has acknowledged to the one of today."""
        lineage, after = self._lineage.known, self._stale_after
        if not lineage:
            return
        batches = await self._journal.stale(lineage, after=after, limit=EVENTS_MAX)
        if not batches.batch_ids:
            await self._hand_over([], resent=True, is_last=True)
            self._has_stale = lineage != self._lineage.known
            return
        await self._send_in_parts(batches.events)
        await self._journal.mark(batches.batch_ids, lineage)
        self.counts.sent_again += len(batches.events)
        if lineage == self._lineage.known:
            self._stale_after = batches.batch_ids[-1]

    async def _send_in_parts(self, events: list[bytes]) -> None:
        for start in range(0, len(events), self._limit):
            await self._hand_over(events[start : start + self._limit], resent=True)

    async def _hand_over(
        self, bodies: list[bytes], *, resent: bool = False, is_last: bool = False
    ) -> UsageReceipt:
        """Send one batch, and take in the receipt. Raises ShipmentFailed."""
        batch = UsageBatch(
            self._journal.gateway_id,
            tuple(msgspec.Raw(body) for body in bodies),
            sent_at=self._wall(),
            lineage=self._lineage.known,
            resent=resent,
            is_last=is_last,
        )
        try:
            receipt = await self._send(batch)
        except ShipmentFailed as error:
            if error.too_big:
                self._limit = max(1, self._limit // 2)
            raise
        self._lineage.observe(receipt.lineage)
        self._count(receipt)
        return receipt

    def _note_restored(self) -> None:
        """The database was restored: what it was told since its backup has to be told again."""
        self._has_stale, self._stale_after = True, 0
        self._journal.committed.set()

    def _count(self, receipt: UsageReceipt) -> None:
        self.counts.shipped += receipt.accepted
        self.counts.duplicates += receipt.duplicates
        self.counts.dead_lettered += len(receipt.dead_lettered)
        for dead in receipt.dead_lettered:
            log.error("usage_dead_lettered", event_id=dead.event_id, reason=dead.reason)

    async def _wait_for_events(self) -> None:
        self._limit = EVENTS_MAX
        if self._has_stale and self._lineage.known:
            return
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                await self._journal.committed.wait()
        except TimeoutError:
            return
        self._journal.committed.clear()
        await asyncio.sleep(self._gather_seconds)
