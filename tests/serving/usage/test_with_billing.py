"""Two gateways and the real billing together: what the fake promises is what is there."""

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db import connections

from billing.credit.services.leases import answer
from billing.metering.ingest import ingest
from control.limits.spending import add_limit
from control.permissions import Actor
from serving.contract.budget import balance_budget_id
from serving.contract.lease import LeaseReply, LeaseRequest
from serving.contract.usage import LeaseCharge
from serving.usage.leases import BudgetExceeded, BudgetReservation, MoneyHeld
from tests.fixtures.balances import Money, open_money
from tests.fixtures.fake_billing import FakeBilling
from tests.fixtures.usage import give_credit, make_batch, make_customer, make_event, make_price

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
WORST = 7_001


def answer_in_thread(request: LeaseRequest) -> LeaseReply:
    """Call billing as a web server's thread does."""
    try:
        return answer(request, now=datetime.now(UTC))
    finally:
        connections.close_all()


@asynccontextmanager
async def two_gateways(folder: Path) -> AsyncIterator[tuple[Money, Money]]:
    async def call(request: LeaseRequest) -> LeaseReply:
        return await asyncio.get_running_loop().run_in_executor(threads, answer_in_thread, request)

    nowhere = FakeBilling()
    with ThreadPoolExecutor(4) as threads:
        async with (
            open_money(folder / "a", nowhere) as one,
            open_money(folder / "b", nowhere) as two,
        ):
            one.poll._exchange = two.poll._exchange = call
            yield one, two


def credited(requests: int) -> str:
    """Return the balance of a new customer with money for so many requests."""
    customer = make_customer("Acme")
    give_credit(customer, requests * WORST, now=datetime.now(UTC))
    return balance_budget_id(customer.id)


def early_enough() -> datetime:
    """Return the time, once a minute of the day is left: a limit begins anew with the next."""
    now = datetime.now(UTC)
    soon = now + timedelta(minutes=1)
    if soon.date() != now.date():
        time.sleep((soon.replace(hour=0, minute=0, second=0) - now).total_seconds())
    return datetime.now(UTC)


def test_money_for_three_admits_three_of_two_hundred(tmp_path: Path) -> None:
    budget = credited(3)

    async def crowd() -> list[object]:
        async with two_gateways(tmp_path) as gateways:
            tries = [gateway.hold(WORST, budget) for _ in range(100) for gateway in gateways]
            results = await asyncio.gather(*tries, return_exceptions=True)
            return results

    results = asyncio.run(crowd())
    assert sum(isinstance(result, BudgetReservation) for result in results) == 3
    assert sum(isinstance(result, MoneyHeld) for result in results) == 197


def test_a_burst_on_two_gateways_waits_for_what_the_others_hold_and_is_all_served(
    tmp_path: Path,
) -> None:
    """Each could cost a third of what there is, and costs a hundredth of that."""
    budget = credited(3)

    async def serve(gateway: Money) -> None:
        hold = await gateway.hold(WORST, budget, patience_seconds=100)
        await asyncio.sleep(0.01)
        hold.charge(WORST // 100)

    async def crowd() -> None:
        async with two_gateways(tmp_path) as gateways:
            await asyncio.gather(*(serve(gateway) for _ in range(10) for gateway in gateways))
            assert [gateway.lease_manager.held_nanos() for gateway in gateways] == [0, 0]

    asyncio.run(crowd())


@pytest.mark.parametrize("period", ["day", "week"])
def test_a_hard_limit_is_not_passed_by_two_gateways_at_once(tmp_path: Path, period: str) -> None:
    """One request was made before the limit was set, for four: three of two hundred pass, the
    others hear that those are under way, and, once they have cost what they held, of the limit."""
    customer, now = make_customer("Acme"), early_enough()
    give_credit(customer, 10**12, now=now)
    price = make_price(input_nanos=WORST * 10**6, cached_input_nanos=0, output_nanos=0)
    event = make_event(
        customer, price, received_at=now, input_tokens=1, cached_input_tokens=0, output_tokens=0
    )
    ingest(make_batch([event]), now=now)
    name = add_limit(
        actor=Actor.for_system("tests"), organization=customer.organization, owner_id=customer.id,
        period=period, limit_nanos=4 * WORST, is_hard=True, now=now,
    ).budget_id  # fmt: skip
    budgets = balance_budget_id(customer.id), name

    async def crowd() -> tuple[int, list[object]]:
        async with two_gateways(tmp_path) as gateways:
            tries = [gateway.hold(WORST, *budgets) for _ in range(100) for gateway in gateways]
            results = await asyncio.gather(*tries, return_exceptions=True)
            holds = [
                (gateways[place % 2].journal.gateway_id, result.charge(WORST))
                for place, result in enumerate(results)
                if isinstance(result, BudgetReservation)
            ]
            assert sum(isinstance(result, MoneyHeld) for result in results) == 200 - len(holds)
            await asyncio.get_running_loop().run_in_executor(None, book, holds)
            tries = [
                gateway.hold(WORST, *budgets, patience_seconds=100)
                for _ in range(5)
                for gateway in gateways
            ]
            return len(holds), await asyncio.gather(*tries, return_exceptions=True)

    def book(holds: list[tuple[str, tuple[LeaseCharge, ...]]]) -> None:
        events = [
            make_event(
                customer, price, received_at=now, input_tokens=1, cached_input_tokens=0,
                output_tokens=0, gateway_id=gateway_id, charges=charges,
            )
            for gateway_id, charges in holds
        ]  # fmt: skip
        for event in events:
            ingest(make_batch([event], gateway_id=event.gateway_id), now=now)
        connections.close_all()

    held, refused = asyncio.run(crowd())
    assert (held, {type(one) for one in refused}) == (3, {BudgetExceeded})
    assert {(one.budget_id, one.limit_nanos) for one in refused} == {(name, 4 * WORST)}
    assert {one.code for one in refused} == {"organization_spend_limit_exceeded"}


def test_idle_money_moves_to_the_gateway_that_needs_it_and_all_goes_back(tmp_path: Path) -> None:
    budget = credited(3)

    async def move() -> None:
        async with two_gateways(tmp_path) as (one, two):
            for gateway in (one, two, one, two):
                (await gateway.hold(3 * WORST, budget)).void()
            await asyncio.gather(one.poll.return_all(), two.poll.return_all())
            assert (one.poll.leases, two.poll.leases) == ({}, {})
            assert one.lineage.known == two.lineage.known != ""

    asyncio.run(move())
