"""Shipping: batches of usage events to billing, again and again until acknowledged."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec
import structlog

from serving.contract.usage import EVENTS_MAX, LeaseCharge, UsageBatch, UsageReceipt
from serving.usage.journal import Charged, Journal, JournalUnavailable

log = structlog.get_logger(__name__)

Send = Callable[[UsageBatch], Awaitable[UsageReceipt]]
"""One call to billing. Raises ShipmentFailed."""

GATHER_SECONDS = 0.1
"""How long events gather before a batch leaves."""
IDLE_SECONDS = 5.0
BACKOFF_FIRST_SECONDS = 0.2
BACKOFF_MAX_SECONDS = 5.0


class ShipmentFailed(Exception):
    """Billing did not acknowledge; `too_big` when a smaller batch might pass."""

    def __init__(self, reason: str, *, too_big: bool = False) -> None:
        super().__init__(reason)
        self.too_big = too_big


@dataclass(slots=True)
class ShipmentCounts:
    """What a metric should show of shipping."""

    shipped: int = 0
    duplicates: int = 0
    dead_lettered: int = 0
    failures: int = 0


class Shipper:
    """Empties the journal into billing."""

    def __init__(
        self,
        journal: Journal,
        send: Send,
        on_acknowledged: Callable[[list[LeaseCharge]], None],
        *,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.counts = ShipmentCounts()
        self._journal = journal
        self._send = send
        self._on_acknowledged = on_acknowledged
        self._jitter = jitter
        self._limit = EVENTS_MAX

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
                await asyncio.sleep(self._pause_seconds(failures_in_a_row))
                continue
            await self._wait_for_events()

    async def ship_all(self) -> None:
        """Ship until the journal has no finished event left.

        Raises ShipmentFailed, or JournalUnavailable when what is acknowledged cannot be deleted.
        """
        while rows := await self._journal.next_done(self._limit):
            await self._ship(rows)
            if len(rows) < self._limit:
                # What has come since may gather first, or a busy gateway ships one by one.
                return

    async def _ship(self, rows: list[tuple[str, bytes]]) -> None:
        events = tuple(msgspec.Raw(body) for _, body in rows)
        try:
            receipt = await self._send(UsageBatch(self._journal.gateway_id, events))
        except ShipmentFailed as error:
            if error.too_big:
                self._limit = max(1, self._limit // 2)
            raise
        self._count(receipt)
        await self._journal.forget([event_id for event_id, _ in rows])
        charges = [
            charge for _, body in rows for charge in msgspec.json.decode(body, type=Charged).charges
        ]
        self._on_acknowledged(charges)

    def _count(self, receipt: UsageReceipt) -> None:
        self.counts.shipped += receipt.accepted
        self.counts.duplicates += receipt.duplicates
        self.counts.dead_lettered += len(receipt.dead_lettered)
        for dead in receipt.dead_lettered:
            log.error("usage_dead_lettered", event_id=dead.event_id, reason=dead.reason)

    async def _wait_for_events(self) -> None:
        self._limit = EVENTS_MAX
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                await self._journal.committed.wait()
        except TimeoutError:
            return
        self._journal.committed.clear()
        await asyncio.sleep(GATHER_SECONDS)

    def _pause_seconds(self, failures_in_a_row: int) -> float:
        doubled = BACKOFF_FIRST_SECONDS * 2 ** min(failures_in_a_row - 1, 10)
        return min(BACKOFF_MAX_SECONDS, doubled) * (0.5 + self._jitter() / 2)
