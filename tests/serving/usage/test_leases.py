"""Money in a gateway: never more held and charged than granted; exactly who fits is admitted."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract.lease import Ask, Granted, LeaseReply, LeaseRequest, Refused
from serving.usage.hold import Hold
from serving.usage.journal import Journal
from serving.usage.lease import Lease
from serving.usage.purse import Purse
from serving.usage.treasury import BillingUnreachable, BudgetRefused, Treasury

CENT = 10_000_000


class Bank:
    """Grants as the contract says: need, up to want, never more than half unless needed."""

    def __init__(self, **balances: int) -> None:
        self.free = dict(balances)
        self.numbers = itertools.count(1)
        self.requests: list[LeaseRequest] = []
        self.recalls: tuple[str, ...] = ()
        self.lease_seconds = 900.0
        self.is_down = False

    async def exchange(self, request: LeaseRequest) -> LeaseReply:
        await asyncio.sleep(0)
        if self.is_down:
            raise BillingUnreachable
        self.requests.append(request)
        recalls, self.recalls = self.recalls, ()
        return LeaseReply(tuple(self.answer(ask) for ask in request.asks), recalls)

    def answer(self, ask: Ask) -> Granted | Refused:
        free = self.free.get(ask.budget_id, 0)
        if free < ask.need_nanos:
            return Refused(ask.ask_id, ask.budget_id, "credit_balance_exhausted", False)
        granted = max(ask.need_nanos, min(ask.want_nanos, free // 2))
        self.free[ask.budget_id] -= granted
        until = datetime.now(UTC) + timedelta(seconds=self.lease_seconds)
        return Granted(ask.ask_id, ask.budget_id, f"lease_{next(self.numbers)}", granted, until)

    @property
    def returns(self) -> list:
        return [back for request in self.requests for back in request.returns]


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = Journal(tmp_path / "journal.sqlite3")
    yield opened
    await opened.close()


@pytest.fixture
async def bank() -> Bank:
    return Bank(org_a=1_000 * CENT)


@pytest.fixture
async def treasury(bank: Bank, journal: Journal) -> AsyncIterator[Treasury]:
    made = Treasury(bank.exchange, journal)
    polling = asyncio.create_task(made.run())
    yield made
    polling.cancel()


@given(
    st.lists(st.integers(1, 1_000), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 800), st.integers(0, 1_000)), max_size=40),
)
def test_charged_and_held_never_exceed_what_is_granted(
    grants: list[int], requests: list[tuple[int, int]]
) -> None:
    purse = Purse("org_a", str)
    purse.leases = [Lease(f"l{n}", "org_a", nanos, 100.0) for n, nanos in enumerate(grants)]
    open_holds: list[Hold] = []
    charged = 0
    for number, (worst, share) in enumerate(requests):
        parts = purse.try_hold(worst, now=1.0)
        if parts is not None:
            open_holds.append(Hold(worst, (parts,)))
        if open_holds and number % 2:
            hold = open_holds.pop(0)
            charges = hold.charge(hold.nanos * share // 1_000)
            charged += sum(charge.charged_nanos for charge in charges)
        assert all(lease.keep_nanos <= lease.granted_nanos for lease in purse.leases)
        assert all(lease.held_nanos >= 0 for lease in purse.leases)
    assert sum(lease.charged_nanos for lease in purse.leases) == charged
    for hold in open_holds:
        hold.void()
    assert purse.spendable(1.0) == sum(grants) - charged


def test_a_hold_ends_exactly_once() -> None:
    lease = Lease("l", "org_a", 100, 100.0)
    purse = Purse("org_a", str)
    purse.leases = [lease]
    parts = purse.try_hold(60, 1.0)
    assert parts is not None
    hold = Hold(60, (parts,))
    hold.charge(10)
    with pytest.raises(RuntimeError):
        hold.void()
    assert (lease.charged_nanos, lease.held_nanos) == (10, 0)


async def test_money_for_three_admits_exactly_three_of_two_hundred(journal: Journal) -> None:
    bank = Bank(org_a=3 * 7_001)
    treasury = Treasury(bank.exchange, journal)
    polling = asyncio.create_task(treasury.run())
    tries = (treasury.hold(("org_a",), 7_001) for _ in range(200))
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(result, Hold) for result in results) == 3
    assert sum(isinstance(result, BudgetRefused) for result in results) == 197
    polling.cancel()


async def test_every_budget_of_the_chain_must_agree_or_none_is_held(
    bank: Bank, treasury: Treasury
) -> None:
    bank.free["key_a"] = 5
    with pytest.raises(BudgetRefused):
        await treasury.hold(("org_a", "key_a"), 1_000)
    assert treasury.held_nanos() == 0
    hold = await treasury.hold(("org_a", "key_a"), 5)
    assert {charge.budget_id for charge in hold.charge(4)} == {"org_a", "key_a"}


async def test_money_is_fetched_ahead_so_that_most_requests_wait_for_nothing(
    bank: Bank, treasury: Treasury
) -> None:
    for _ in range(200):
        (await treasury.hold(("org_a",), 100_000)).charge(100_000)
    asked = sum(len(request.asks) for request in bank.requests)
    assert asked <= 10


async def test_an_ask_keeps_its_id_until_it_is_answered(bank: Bank, treasury: Treasury) -> None:
    bank.is_down = True
    waiting = asyncio.create_task(treasury.hold(("org_a",), 100))
    await asyncio.sleep(0.05)
    ask = treasury._purse("org_a").ask
    bank.is_down = False
    await waiting
    assert ask is not None
    assert bank.requests[0].asks[0].ask_id == ask.ask_id


async def test_billing_that_does_not_answer_is_not_called_a_lack_of_money(
    bank: Bank, treasury: Treasury
) -> None:
    bank.is_down = True
    with pytest.raises(BillingUnreachable):
        await treasury.hold(("org_a",), 100)


async def test_a_recalled_lease_admits_nothing_more_and_is_closed_after_its_last_event(
    bank: Bank, treasury: Treasury
) -> None:
    first, second = [await treasury.hold(("org_a",), 100) for _ in range(2)]
    [lease] = treasury.leases.values()
    bank.recalls = (lease.lease_id,)
    await treasury.poll()
    assert lease.spendable(0.0) == 0
    await treasury.poll()
    assert (bank.returns[-1].keep_nanos, bank.returns[-1].closed) == (200, False)
    charges = first.charge(30)
    second.void()
    await treasury.poll()
    assert (bank.returns[-1].keep_nanos, bank.returns[-1].closed) == (30, False)
    treasury.acknowledged(list(charges))
    await treasury.poll()
    assert (bank.returns[-1].keep_nanos, bank.returns[-1].closed) == (30, True)
    assert lease.lease_id not in treasury.leases


async def test_a_lease_stops_admitting_ten_seconds_before_it_expires(
    bank: Bank, treasury: Treasury
) -> None:
    bank.lease_seconds = 10.0
    with pytest.raises(BillingUnreachable):
        await treasury.hold(("org_a",), 100)


async def test_cancelling_while_waiting_for_money_holds_nothing(
    bank: Bank, treasury: Treasury
) -> None:
    bank.is_down = True
    waiting = asyncio.create_task(treasury.hold(("org_a",), 100))
    await asyncio.sleep(0.02)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    bank.is_down = False
    await treasury.poll()
    assert treasury.held_nanos() == 0


async def test_closing_returns_what_an_ask_still_open_brings_and_asks_for_nothing_new(
    bank: Bank, journal: Journal
) -> None:
    treasury = Treasury(bank.exchange, journal)
    waiting = asyncio.create_task(treasury.hold(("org_a",), 100))
    await asyncio.sleep(0.01)
    treasury._purse("org_a").next_ask(0.0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await treasury.give_all_back()
    assert [len(request.asks) for request in bank.requests] == [1, 0]
    assert [back.closed for back in bank.returns] == [True]
    assert treasury.leases == {}


async def test_purses_that_nobody_uses_are_forgotten(bank: Bank, journal: Journal) -> None:
    treasury = Treasury(bank.exchange, journal)
    for number in range(5):
        treasury._purse(f"org_{number}")
    await treasury.poll()
    assert treasury._purses == {}
