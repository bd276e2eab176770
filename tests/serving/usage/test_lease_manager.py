"""Who fits is admitted, who does not hears why, in time; idle money elsewhere is no refusal."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from serving.contract.budget import balance_budget_id, limit_budget_id
from serving.usage import lease_balance, leases
from serving.usage.leases import (
    BillingUnreachable,
    BudgetExceeded,
    BudgetReservation,
    LeasesRecalled,
    MoneyHeld,
)
from tests.fixtures.balances import BALANCE, CENT, LIMIT, Clocks, Money, open_money
from tests.fixtures.fake_billing import FakeBilling
from tests.fixtures.waiting import eventually

KEY = limit_budget_id("key_a")
WORST = 7_001


@pytest.fixture
def billing() -> FakeBilling:
    made = FakeBilling()
    made.limits = {BALANCE: 1_000 * CENT, LIMIT: 1_000 * CENT}
    return made


@pytest.fixture
async def money(billing: FakeBilling, tmp_path: Path) -> AsyncIterator[Money]:
    async with open_money(tmp_path / "a", billing) as opened:
        yield opened


@pytest.fixture
async def other(billing: FakeBilling, tmp_path: Path) -> AsyncIterator[Money]:
    async with open_money(tmp_path / "b", billing) as opened:
        yield opened


def count(results: list[object], kind: type) -> int:
    return sum(isinstance(result, kind) for result in results)


async def test_money_for_three_admits_three_of_two_hundred_on_two_gateways(
    billing: FakeBilling, money: Money, other: Money
) -> None:
    billing.limits = {BALANCE: 3 * WORST, LIMIT: 100 * CENT}
    tries = [gateway.hold(WORST, BALANCE, LIMIT) for _ in range(100) for gateway in (money, other)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    holds = [result for result in results if isinstance(result, BudgetReservation)]
    assert (len(holds), count(results, MoneyHeld)) == (3, 197)
    for hold in holds:
        hold.charge(WORST)
    billing.limits[BALANCE] = 0  # as if it were booked
    for lease in billing.books.leases.values():
        lease.settled_nanos = lease.keep_nanos
    tries = [
        gateway.hold(WORST, BALANCE, LIMIT, patience_seconds=60)
        for _ in range(100)
        for gateway in (money, other)
    ]
    results = await asyncio.gather(*tries, return_exceptions=True)
    refused = [result for result in results if isinstance(result, BudgetExceeded)]
    assert len(refused) == 200
    assert {(one.code, one.available_nanos) for one in refused} == {("credit_balance_exhausted", 0)}
    assert (money.polls_at_once_max, other.polls_at_once_max) == (1, 1)


async def test_many_who_wait_for_money_that_is_scarce_are_served_in_few_calls(
    billing: FakeBilling, money: Money
) -> None:
    billing.limits[BALANCE] = 150 * WORST
    tries = [money.hold(WORST) for _ in range(200)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert (count(results, BudgetReservation), count(results, MoneyHeld)) == (150, 50)
    assert sum(len(request.asks) for request in billing.requests) <= 60


async def test_a_burst_that_could_cost_more_than_there_is_waits_its_turn_and_is_all_served(
    billing: FakeBilling, money: Money, other: Money
) -> None:
    billing.limits[BALANCE] = 3 * WORST

    async def serve(gateway: Money) -> None:
        hold = await gateway.hold(WORST, BALANCE, LIMIT, patience_seconds=60)
        await asyncio.sleep(0)
        gateway.poll.acknowledged(hold.charge(WORST // 50))

    await asyncio.gather(*(serve(gateway) for _ in range(50) for gateway in (money, other)))
    assert money.lease_manager.held_nanos() == other.lease_manager.held_nanos() == 0
    assert sum(len(request.asks) for request in billing.requests) <= 400


async def test_what_could_never_come_back_is_not_waited_for(
    billing: FakeBilling, money: Money
) -> None:
    billing.limits[BALANCE] = 1_000
    held = await money.hold(600)
    with pytest.raises(BudgetExceeded) as refused:
        await money.hold(1_001, patience_seconds=60)
    assert (refused.value.available_nanos, refused.value.held_nanos) == (400, 600)
    with pytest.raises(MoneyHeld):
        await money.hold(700)
    waiting = asyncio.create_task(money.hold(700, patience_seconds=60))
    await eventually(
        lambda: any(balance.has_waiters for balance in money.lease_manager.all_balances())
    )
    held.charge(400)
    with pytest.raises(BudgetExceeded) as refused:
        await waiting
    assert refused.value.available_nanos == 600


async def test_a_hold_that_shrinks_serves_who_waits(billing: FakeBilling, money: Money) -> None:
    billing.limits[BALANCE] = billing.limits[LIMIT] = 1_000
    held = await money.hold(900, BALANCE, LIMIT)
    waiting = asyncio.create_task(money.hold(800, BALANCE, LIMIT, patience_seconds=60))
    await asyncio.sleep(0.01)
    held.shrink(300)
    assert (held.nanos, not waiting.done()) == (300, True)
    held.shrink(200)
    (await asyncio.wait_for(waiting, 60)).void()
    assert {charge.charged_nanos for charge in held.charge(200)} == {200}
    assert money.lease_manager.held_nanos() == 0


async def test_only_so_many_of_an_organization_wait_for_what_its_others_hold(
    billing: FakeBilling, money: Money, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each looks again and again, on everybody's loop: 20,000 held it for 0.7 s at a time."""
    monkeypatch.setattr(leases, "WAITING_MAX", 3)
    # Who comes last hears at once that it is held, and asks nobody.
    monkeypatch.setattr(lease_balance, "REFUSAL_SECONDS", 60.0)
    others = balance_budget_id("org_b")
    billing.limits |= {BALANCE: 1_000, KEY: 500, others: 1_000}
    held = [await money.hold(900), await money.hold(900, others)]
    tries = [
        asyncio.create_task(money.hold(400, *budgets, patience_seconds=60))
        for budgets in ((BALANCE,), (BALANCE, KEY), (BALANCE,), (others,))
    ]
    await asyncio.sleep(1.5 * leases.LOOK_AGAIN_SECONDS)  # they look again, and keep their place
    assert not any(one.done() for one in tries)
    async with asyncio.timeout(60):
        with pytest.raises(MoneyHeld):
            await money.hold(400, patience_seconds=600)
    for one in held:
        one.charge(100)
    for one in asyncio.as_completed([*tries[:2], tries[3]]):
        (await one).void()
    (await tries[2]).void()
    assert not money.lease_manager._waiting


async def test_nobody_waits_for_money_whose_client_left_nor_when_the_gateway_ends(
    billing: FakeBilling, money: Money
) -> None:
    billing.limits[BALANCE] = 1_000
    held, wanted = await money.hold(900), [True]
    tries = [
        asyncio.create_task(money.hold(800, patience_seconds=600, is_wanted=is_wanted))
        for is_wanted in (lambda: wanted[0], lambda: True)
    ]
    await asyncio.sleep(0.01)
    wanted[0] = False
    with pytest.raises(MoneyHeld):
        await tries[0]
    assert not tries[1].done()
    money.lease_manager.stop_waiting()
    with pytest.raises(MoneyHeld):
        await tries[1]
    held.void()
    assert not any(balance.has_waiters for balance in money.lease_manager.all_balances())


async def test_money_that_lies_idle_in_another_gateway_is_called_back(
    billing: FakeBilling, money: Money, other: Money
) -> None:
    billing.limits[BALANCE] = 5 * CENT
    (await other.hold(5 * CENT)).void()
    (await money.hold(5 * CENT)).void()


async def test_money_that_does_not_come_back_in_time_is_no_lack_of_credit(
    billing: FakeBilling, other: Money, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LOOK_AGAIN_SECONDS", 0.01)
    billing.limits[BALANCE] = 5 * CENT
    (await other.hold(5 * CENT)).void()
    other.is_down = True
    clocks = Clocks(datetime.now(UTC))
    async with open_money(tmp_path / "a", billing, clocks) as money:
        waiting = asyncio.create_task(money.hold(5 * CENT))

        def is_called_back() -> bool:
            balances = money.lease_manager.all_balances()
            return any(one.refusal_for(5 * CENT, clocks.seconds) for one in balances)

        await eventually(is_called_back)
        for _ in range(2):
            await asyncio.sleep(0)  # it hears of it too
        assert not waiting.done()
        clocks.pass_(leases.WAIT_SECONDS)
        with pytest.raises(LeasesRecalled):
            await waiting


async def test_every_budget_of_the_chain_must_agree_or_none_is_held(
    billing: FakeBilling, money: Money
) -> None:
    billing.limits[KEY] = 5
    with pytest.raises(BudgetExceeded) as refused:
        await money.hold(1_000, BALANCE, LIMIT, KEY)
    assert (refused.value.code, refused.value.available_nanos) == ("key_budget_exceeded", 5)
    assert money.lease_manager.held_nanos() == 0
    hold = await money.hold(5, BALANCE, KEY)
    assert {charge.budget_id for charge in hold.charge(4)} == {BALANCE, KEY}


async def test_what_is_left_is_said_with_what_lies_here(billing: FakeBilling, money: Money) -> None:
    billing.limits[BALANCE] = 1_000
    (await money.hold(600)).charge(600)
    with pytest.raises(BudgetExceeded) as refused:
        await money.hold(700)
    assert refused.value.available_nanos == 400
    with pytest.raises(BudgetExceeded) as refused:
        await money.hold(1_100)
    assert refused.value.available_nanos == 400


async def test_a_refusal_is_believed_for_as_much_and_more_but_not_for_less(
    billing: FakeBilling, money: Money, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_balance, "REFUSAL_SECONDS", 60.0)
    billing.limits[BALANCE] = 500
    with pytest.raises(BudgetExceeded):
        await money.hold(501)
    asked = len(billing.requests)
    for nanos in (501, 10_000):
        with pytest.raises(BudgetExceeded):
            await money.hold(nanos)
    assert len(billing.requests) == asked
    (await money.hold(500)).void()


async def test_a_chain_that_is_cold_asks_for_all_its_budgets_at_once(
    billing: FakeBilling, money: Money
) -> None:
    billing.limits[KEY] = 100 * CENT
    (await money.hold(WORST, BALANCE, LIMIT, KEY)).void()
    assert [len(request.asks) for request in billing.requests if request.asks] == [3]


async def test_a_thousand_cold_organizations_are_served_page_by_page(
    billing: FakeBilling, money: Money, other: Money
) -> None:
    budgets = [f"balance:org_{number}" for number in range(1_000)]
    billing.limits = dict.fromkeys(budgets, 100 * CENT)
    tries = [gateway.hold(WORST, budget) for budget in budgets for gateway in (money, other)]
    holds = await asyncio.gather(*tries)
    assert len(holds) == 2_000
    assert max(len(request.asks) for request in billing.requests) == 500


async def test_a_budget_that_is_busy_is_asked_again_soon_and_waited_for(
    billing: FakeBilling, money: Money
) -> None:
    billing.busy.add(BALANCE)
    waiting = asyncio.create_task(money.hold(WORST))
    await eventually(lambda: sum(len(request.asks) for request in billing.requests) >= 4)
    asks = [ask for request in billing.requests for ask in request.asks]
    assert len({ask.ask_id for ask in asks}) == 1
    assert [ask.deferred for ask in asks[:2]] == [False, True]
    billing.busy.clear()
    (await asyncio.wait_for(waiting, 60)).void()
    assert money.poll.counts.deferred >= 4


async def test_a_busy_budget_holds_up_no_other(billing: FakeBilling, money: Money) -> None:
    billing.busy.add(LIMIT)
    waiting = asyncio.create_task(money.hold(WORST, LIMIT))
    await eventually(lambda: billing.requests)
    (await money.hold(WORST)).void()
    billing.busy.clear()
    (await waiting).void()


async def test_an_ask_keeps_its_id_until_it_is_answered(billing: FakeBilling, money: Money) -> None:
    lease, lost = billing.lease, []

    def lose_answer(request):
        reply = lease(request)
        billing.lease = lease
        lost.extend(reply.answers)
        raise BillingUnreachable

    billing.lease = lose_answer
    await money.hold(WORST)
    assert [answer.lease_id for answer in lost] == list(money.poll.leases)


async def test_billing_that_does_not_answer_is_not_called_a_lack_of_money(
    money: Money, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "WAIT_SECONDS", 0.2)
    money.is_down = True
    with pytest.raises(BillingUnreachable):
        await money.hold(WORST)


async def test_cancelling_while_waiting_for_money_holds_nothing(money: Money) -> None:
    money.is_down = True
    waiting = asyncio.create_task(money.hold(WORST, BALANCE, LIMIT))
    await asyncio.sleep(0.02)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert money.lease_manager.held_nanos() == 0
    assert not any(balance.has_waiters for balance in money.lease_manager.all_balances())


async def test_most_requests_wait_for_nothing(billing: FakeBilling, money: Money) -> None:
    for _ in range(200):
        await money.spend(100_000)
    assert sum(len(request.asks) for request in billing.requests) <= 10


async def test_what_is_free_of_charge_needs_no_money(billing: FakeBilling, money: Money) -> None:
    billing.limits[BALANCE] = 0
    (await money.hold(0)).charge(0)
