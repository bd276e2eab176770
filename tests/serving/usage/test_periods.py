"""A charge belongs to the period of its arrival; midnight and a wrong clock interrupt nothing."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from serving.usage.leases import BudgetReservation, ReservationUnavailable
from tests.fixtures.balances import BALANCE, CENT, LIMIT, Clocks, Money, open_money
from tests.fixtures.fake_billing import FakeBilling
from tests.fixtures.waiting import eventually

NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC)
DECEMBER = datetime(2026, 12, 1, tzinfo=UTC)
MOMENT = timedelta(milliseconds=1)


@pytest.fixture
def clocks() -> Clocks:
    return Clocks(DECEMBER - timedelta(minutes=20))


@pytest.fixture
def billing(clocks: Clocks) -> FakeBilling:
    made = FakeBilling(now=lambda: clocks.wall)
    made.limits = {BALANCE: 1_000 * CENT, LIMIT: 1_000 * CENT}
    return made


@pytest.fixture
async def money(billing: FakeBilling, tmp_path: Path, clocks: Clocks) -> AsyncIterator[Money]:
    async with open_money(tmp_path / "a", billing, clocks, polls=False) as opened:
        yield opened


async def fetched(money: Money, nanos: int, at: datetime | None = None) -> BudgetReservation:
    """Hold, polling by hand until the money is here."""
    waiting = asyncio.create_task(money.hold(nanos, BALANCE, LIMIT, at=at))
    for _ in range(5):
        await asyncio.sleep(0)
        await money.poll.sync_once()
    return await waiting


async def at_once(money: Money, nanos: int, at: datetime | None = None) -> BudgetReservation:
    """Hold on what is here; fail where a call would be needed."""
    return await asyncio.wait_for(money.hold(nanos, BALANCE, LIMIT, at=at), 0.05)


def periods(billing: FakeBilling, hold: BudgetReservation, nanos: int = 5) -> list[datetime]:
    return [
        billing.books.leases[charge.lease_id].granted.period
        for charge in hold.charge(nanos)
        if charge.budget_id == LIMIT
    ]


async def test_leases_of_the_next_period_are_here_before_it_begins(
    billing: FakeBilling, money: Money, clocks: Clocks
) -> None:
    hold = await fetched(money, 1_000)
    assert periods(billing, hold) == [NOVEMBER]
    for _ in range(1_230):
        clocks.pass_(1)
        (await at_once(money, 1_000)).void()
        await money.poll.sync_once()
    assert clocks.wall > DECEMBER
    asks = [ask for request in billing.requests for ask in request.asks]
    [ahead] = [ask for ask in asks if ask.at == DECEMBER]
    assert ahead.budget_id == LIMIT
    assert periods(billing, await at_once(money, 1_000)) == [DECEMBER]


async def test_one_who_came_before_midnight_is_charged_to_the_day_before(
    billing: FakeBilling, money: Money, clocks: Clocks
) -> None:
    clocks.pass_(19 * 60)
    (await fetched(money, 1_000)).void()
    clocks.pass_(60 + 29)
    hold = await at_once(money, 1_000, at=DECEMBER - MOMENT)
    assert periods(billing, hold) == [NOVEMBER]


async def test_one_who_came_long_before_the_end_gets_no_lease_of_that_period_any_more(
    billing: FakeBilling, money: Money, clocks: Clocks
) -> None:
    clocks.pass_(19 * 60)
    (await fetched(money, 1_000)).void()
    clocks.pass_(60 + 31)
    waiting = asyncio.create_task(fetched(money, 1_000, at=DECEMBER - MOMENT))
    await eventually(lambda: billing.leases_of(LIMIT)[-1].granted.period == DECEMBER)
    waiting.cancel()
    assert billing.leases_of(LIMIT)[-1].granted.period == DECEMBER


async def test_a_straggler_finds_a_lease_of_its_own_period(
    billing: FakeBilling, money: Money, clocks: Clocks
) -> None:
    clocks.pass_(20 * 60 + 5)
    hold = await fetched(money, 1_000, at=DECEMBER - timedelta(seconds=6))
    assert periods(billing, hold) == [NOVEMBER]


async def test_a_lease_of_the_month_before_admits_nothing_of_this_one(
    billing: FakeBilling, money: Money, clocks: Clocks
) -> None:
    clocks.pass_(19 * 60)
    (await fetched(money, 1_000)).void()
    clocks.pass_(61)
    assert periods(billing, await at_once(money, 1_000)) == [DECEMBER]


@pytest.mark.parametrize("step", [timedelta(hours=-3), timedelta(minutes=18)])
async def test_a_step_of_the_wall_clock_neither_ends_nor_prolongs_a_lease(
    money: Money, clocks: Clocks, step: timedelta
) -> None:
    (await fetched(money, 1_000)).void()
    clocks.wall += step
    clocks.pass_(899)
    (await asyncio.wait_for(money.hold(1_000), 60)).void()
    clocks.pass_(2)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(money.hold(1_000), 0.05)


async def test_a_gateway_whose_clock_is_wrong_gets_leases_of_full_length(
    billing: FakeBilling, money: Money, clocks: Clocks
) -> None:
    billing._now = lambda: clocks.wall + timedelta(hours=2)
    (await fetched(money, 1_000)).void()
    clocks.pass_(899)
    (await asyncio.wait_for(money.hold(1_000), 60)).void()


async def test_a_lease_of_another_period_than_was_asked_for_is_given_back(
    billing: FakeBilling, money: Money, clocks: Clocks
) -> None:
    waiting = asyncio.create_task(money.hold(1_000, LIMIT, at=NOVEMBER - MOMENT))
    await asyncio.sleep(0)
    [balance] = money.lease_manager.balances_of(LIMIT)
    balance.refill.ends_at = None
    await money.poll.sync_once()
    await money.poll.sync_once()
    assert [back.closed for back in billing.returns] == [True]
    waiting.cancel()
    with pytest.raises((asyncio.CancelledError, ReservationUnavailable)):
        await waiting
