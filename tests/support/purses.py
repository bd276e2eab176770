"""A gateway's money without the gateway: treasury, poll and journal over the fake billing."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from serving.contract.budget import balance_budget_id, limit_budget_id
from serving.contract.lease import LeaseReply, LeaseRequest
from serving.usage.hold import Hold
from serving.usage.journal import Journal
from serving.usage.lineage import Lineage
from serving.usage.moment import wall_clock
from serving.usage.outbox import Returns
from serving.usage.poll import Poll
from serving.usage.treasury import BillingUnreachable, Treasury
from tests.support.fake_billing import FakeBilling

CENT = 10_000_000
BALANCE = balance_budget_id("org_a")
LIMIT = limit_budget_id("org_a")


class Clocks:
    """Monotonic seconds and a wall clock that are moved by hand; the wall can be stepped alone."""

    def __init__(self, wall: datetime = datetime(2026, 11, 21, 12, tzinfo=UTC)) -> None:
        self.seconds = 1_000.0
        self.wall = wall

    def pass_(self, seconds: float) -> None:
        """Let time pass on both."""
        self.seconds += seconds
        self.wall += timedelta(seconds=seconds)


class Money:
    """What a gateway has of money: `clocks` of None are the real ones."""

    def __init__(self, billing: FakeBilling, journal: Journal, clocks: Clocks | None) -> None:
        self.billing = billing
        self.journal = journal
        self.is_down = False
        self.polls_under_way = self.polls_at_once_max = 0
        clock = time.monotonic if clocks is None else lambda: clocks.seconds
        wall = wall_clock if clocks is None else lambda: clocks.wall
        self.lineage = Lineage(journal.lineage, journal.note_lineage)
        self.returns = Returns()
        self.treasury = Treasury(self.returns.outbox, clock=clock, wall=wall)
        self.poll = Poll(self.exchange, self.treasury, self.returns, journal, self.lineage)
        self.poll.adopt(journal.left_leases)

    async def exchange(self, request: LeaseRequest) -> LeaseReply:
        """Call billing, a turn of the loop away."""
        self.polls_under_way += 1
        self.polls_at_once_max = max(self.polls_at_once_max, self.polls_under_way)
        await asyncio.sleep(0)
        self.polls_under_way -= 1
        if self.is_down:
            raise BillingUnreachable
        return self.billing.lease(request)

    async def hold(self, nanos: int, *budget_ids: str, at: datetime | None = None) -> Hold:
        """Hold on the balance, or on the budgets named, for a request of now or of `at`."""
        received_at = at or self.treasury.now().wall
        return await self.treasury.hold(budget_ids or (BALANCE,), nanos, received_at)

    async def spend(self, nanos: int, *budget_ids: str) -> None:
        """Hold and charge the whole of it, and hear that it was booked."""
        charges = (await self.hold(nanos, *budget_ids)).charge(nanos)
        self.poll.acknowledged(charges)


@asynccontextmanager
async def open_money(
    folder: Path,
    billing: FakeBilling,
    clocks: Clocks | None = None,
    *,
    polls: bool = True,
) -> AsyncIterator[Money]:
    """Open a gateway's money on a journal in `folder`; `polls` runs the poll beside."""
    journal = Journal(folder / "journal.sqlite3")
    money = Money(billing, journal, clocks)
    polling = asyncio.create_task(money.poll.run()) if polls else None
    try:
        yield money
    finally:
        if polling is not None:
            polling.cancel()
            with suppress(asyncio.CancelledError):
                await polling
        await journal.close()
