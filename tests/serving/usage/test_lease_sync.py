"""The poll: leases are renewed while there is time, go back when idle, a page at a time."""

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from serving.contract.lease import LeaseReply
from serving.usage import lease_sync
from serving.usage.journal import PUT_LEASE, Journal
from serving.usage.leases import BillingUnreachable
from tests.fixtures.balances import BALANCE, CENT, Clocks, Money, open_money
from tests.fixtures.fake_billing import FakeBilling
from tests.fixtures.waiting import eventually

WORST = 500_000


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def billing(clocks: Clocks) -> FakeBilling:
    made = FakeBilling(now=lambda: clocks.wall)
    made.limits = {BALANCE: 10**6 * CENT}
    return made


@pytest.fixture
async def money(billing: FakeBilling, tmp_path: Path, clocks: Clocks) -> AsyncIterator[Money]:
    async with open_money(tmp_path / "a", billing, clocks, polls=False) as opened:
        yield opened


async def spend(money: Money, nanos: int, *, worst: int = WORST) -> None:
    """Serve one request, polling by hand while it waits."""
    waiting = asyncio.create_task(money.hold(worst))
    await asyncio.sleep(0)
    while not waiting.done():
        await money.poll.sync_once()
        await asyncio.sleep(0)
    money.poll.acknowledged((await waiting).charge(nanos))


async def leave_leases(folder: Path, count: int) -> None:
    """Leave the journal of a gateway that died with so many leases; written at once, not one by
    one."""
    await Journal(folder / "journal.sqlite3").close()
    rows = ((f"lease_{number}", f"balance:org_{number % 700}", CENT) for number in range(count))
    with closing(sqlite3.connect(folder / "journal.sqlite3")) as file, file:
        file.executemany(PUT_LEASE, rows)


def lasting(money: Money, clocks: Clocks, seconds: float) -> int:
    """What could be spent though control went away now, on leases that last so long."""
    leases = money.poll.leases.values()
    return sum(
        lease.unspent_nanos
        for lease in leases
        if not lease.is_stopped and lease.admits_until >= clocks.seconds + seconds
    )


@pytest.mark.parametrize("cost", [1_000, 200_000])
async def test_with_control_away_there_are_always_ten_minutes_of_grace(
    money: Money, clocks: Clocks, cost: int
) -> None:
    for second in range(3_600):
        await spend(money, cost)
        clocks.pass_(1)
        await money.poll.sync_once()
        if second > 120:
            assert lasting(money, clocks, 600) >= 600 * cost
    assert money.poll.granted_nanos() <= 60 * 60 * cost + 10 * WORST + 4 * CENT


async def test_a_budget_used_each_few_minutes_keeps_its_grace(money: Money, clocks: Clocks) -> None:
    chance = random.Random(5)
    for _ in range(200):
        await spend(money, 1_000)
        for _ in range(chance.randint(10, 280)):
            clocks.pass_(1)
            await money.poll.sync_once()
            assert lasting(money, clocks, 600) >= WORST


async def test_renewing_costs_a_few_asks_in_a_quarter_of_an_hour(
    billing: FakeBilling, money: Money, clocks: Clocks
) -> None:
    for _ in range(3_600):
        await spend(money, 20_000)
        clocks.pass_(1)
        await money.poll.sync_once()
    asked = sum(len(request.asks) for request in billing.requests)
    assert asked <= 3_600 / 900 * 8


async def test_what_is_wanted_is_ten_minutes_spend_and_what_is_held_at_once(
    billing: FakeBilling, money: Money, clocks: Clocks
) -> None:
    for _ in range(600):
        await spend(money, 100_000)
        clocks.pass_(1)
        await money.poll.sync_once()
    last = [ask for request in billing.requests for ask in request.asks][-1]
    assert 600 * 100_000 * 0.9 <= last.want_nanos <= 600 * 100_000 * 1.1 + WORST


async def test_what_is_held_and_not_charged_is_not_taken_for_spend(
    money: Money, clocks: Clocks
) -> None:
    for _ in range(300):
        await spend(money, 0, worst=100 * CENT)
        clocks.pass_(1)
        await money.poll.sync_once()
    assert money.poll.granted_nanos() <= 400 * CENT


async def test_an_idle_budget_is_not_renewed_and_goes_back(
    billing: FakeBilling, money: Money, clocks: Clocks
) -> None:
    await spend(money, 1_000)
    for _ in range(30):
        clocks.pass_(60)
        await money.poll.sync_once()
    assert money.poll.leases == {}
    assert list(money.lease_manager.all_balances()) == []
    assert billing.closed == set(billing.books.leases)
    assert len(billing.books.leases) <= 3
    asked = len(billing.requests)
    await money.poll.sync_once()
    assert len(billing.requests) == asked


async def test_towards_the_end_of_the_money_only_who_waits_is_asked_for(
    billing: FakeBilling, money: Money, clocks: Clocks
) -> None:
    billing.limits[BALANCE] = 20 * WORST
    for _ in range(15):
        await spend(money, WORST)
        clocks.pass_(0.5)
        await money.poll.sync_once()
    assert len(billing.books.leases) <= 20
    assert all(lease.granted.granted_nanos >= WORST for lease in billing.books.leases.values())


async def test_a_recalled_lease_admits_nothing_more_and_is_closed_after_its_last_event(
    billing: FakeBilling, money: Money
) -> None:
    await spend(money, 0)
    first, second = await money.hold(100), await money.hold(100)
    [lease] = money.poll.leases.values()
    billing.books.leases[lease.lease_id].recalled = True
    for keep, closed in ((200, False), (30, False), (30, True)):
        await asyncio.sleep(0)
        money.poll._polled_at = float("-inf")
        await money.poll.sync_once()
        await money.poll.sync_once()
        back = billing.returns[-1]
        assert (back.lease_id, back.keep_nanos, back.closed) == (lease.lease_id, keep, closed)
        if keep == 200:
            charges = first.charge(30)
            second.void()
        else:
            money.poll.acknowledged(charges)
    assert lease.lease_id not in money.poll.leases


async def test_a_lease_that_only_a_dead_life_knew_of_is_closed_when_it_is_recalled(
    billing: FakeBilling, money: Money
) -> None:
    await spend(money, 0)
    lease = billing.lease

    def lease_and_recall(request):
        reply = lease(request)
        return LeaseReply(reply.lineage, reply.answers, reply.returned, ("forgotten",))

    billing.lease = lease_and_recall
    money.poll._polled_at = float("-inf")
    await money.poll.sync_once()
    await money.poll.sync_once()
    assert [(back.lease_id, back.keep_nanos, back.closed) for back in billing.returns] == [
        ("forgotten", 0, True)
    ]


async def test_ten_thousand_leases_of_a_previous_life_go_back_in_one_poll(
    billing: FakeBilling, tmp_path: Path, clocks: Clocks
) -> None:
    await leave_leases(tmp_path / "old", 10_000)
    async with open_money(tmp_path / "old", billing, clocks, polls=False) as money:
        assert len(money.poll.leases) == 10_000
        await money.poll.sync_once()
        assert [len(request.returns) for request in billing.requests] == [10_000]
        assert all(back.closed for back in billing.returns)
        assert money.poll.leases == {}
    async with open_money(tmp_path / "old", billing, clocks, polls=False) as money:
        assert money.poll.leases == {}


async def test_more_than_a_page_is_sent_page_after_page_at_once_and_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_sync, "POLL_SECONDS", 3_600.0)
    billing = FakeBilling()
    await leave_leases(tmp_path / "old", 25_000)
    async with open_money(tmp_path / "old", billing) as money:
        await eventually(lambda: not money.poll.leases)
    assert [len(one.returns) for one in billing.requests] == [10_000, 10_000, 5_000]
    assert len({back.lease_id for back in billing.returns}) == 25_000


async def test_what_was_answered_is_taken_though_the_rest_was_not(
    billing: FakeBilling, tmp_path: Path, clocks: Clocks
) -> None:
    billing.returns_max, billing.answers_max = 3, 2
    billing.limits |= {f"balance:org_{number}": 100 * CENT for number in range(5)}
    journal = Journal(tmp_path / "old" / "journal.sqlite3")
    for number in range(10):
        journal.record_lease(f"lease_{number}", BALANCE, CENT)
    await journal.close()
    async with open_money(tmp_path / "old", billing, clocks, polls=False) as money:
        tries = [asyncio.create_task(money.hold(9, f"balance:org_{n}")) for n in range(5)]
        for _ in range(40):
            await asyncio.sleep(0)
            await money.poll.sync_once()
            clocks.pass_(0.05)
        assert all(one.done() for one in tries)
        pages = [len(one.returns) for one in billing.requests if one.returns]
        assert pages == [10, 7, 4]
        assert len({back.lease_id for back in billing.returns}) == 10
        assert len({ask.ask_id for one in billing.requests for ask in one.asks}) <= 11


async def test_a_call_that_is_not_answered_in_time_is_made_smaller(
    billing: FakeBilling, tmp_path: Path, clocks: Clocks
) -> None:
    lease = billing.lease

    def too_slow_for_many(request):
        if len(request.returns) > 3_000:
            raise BillingUnreachable
        return lease(request)

    billing.lease = too_slow_for_many
    journal = Journal(tmp_path / "old" / "journal.sqlite3")
    for number in range(10_000):
        journal.record_lease(f"lease_{number}", BALANCE, CENT)
    await journal.close()
    async with open_money(tmp_path / "old", billing, clocks, polls=False) as money:
        for _ in range(10):
            clocks.pass_(0.5)
            try:
                await money.poll.sync_once()
            except BillingUnreachable:
                continue
        assert money.poll.leases == {}


async def test_the_leases_of_a_journal_of_an_older_version_are_not_sent_for_ever(
    billing: FakeBilling, tmp_path: Path, clocks: Clocks
) -> None:
    billing.returns_max = 0
    journal = Journal(tmp_path / "old" / "journal.sqlite3")
    journal.record_lease("0199aaaa-0000-7000-8000-000000000000", "org_a", CENT)
    await journal.close()
    async with open_money(tmp_path / "old", billing, clocks, polls=False) as money:
        for _ in range(3_600):
            clocks.pass_(0.5)
            await money.poll.sync_once()
    assert len(billing.returns) <= 40


async def test_closing_returns_what_an_ask_still_open_brings_and_asks_for_nothing_new(
    billing: FakeBilling, money: Money
) -> None:
    money.is_down = True
    waiting = asyncio.create_task(money.hold(100))
    await asyncio.sleep(0)
    with pytest.raises(BillingUnreachable):
        await money.poll.sync_once()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    money.is_down = False
    await money.poll.return_all()
    assert [len(request.asks) for request in billing.requests] == [1, 0]
    assert [back.closed for back in billing.returns] == [True]
    assert money.poll.leases == {}
