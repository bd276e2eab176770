"""The month that docs/billing/overview.md works for an accountant, cent by cent."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from billing.credit.models import Budget, GrantKind
from billing.credit.services.grants import expire_grants
from billing.credit.services.leases import take_back
from billing.credit.services.payments import record_payment
from billing.following.posting import post_through
from billing.ledger.causes import AccountKind
from billing.ledger.selectors import balance_nanos
from billing.metering.ingest import ingest
from control.feed.database_identity import database_id
from control.permissions import Actor
from serving.contract.lease import LeaseReturn
from tests.fixtures.following import catch_up
from tests.fixtures.usage import (
    GATEWAY,
    Customer,
    ask_for,
    broken_promises,
    give_credit,
    make_batch,
    make_customer,
    make_event,
    make_price,
)

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]

CENT = 10_000_000
CENTS_PER_TOKEN = {"input_nanos": 0, "cached_input_nanos": 0, "output_nanos": CENT * 1_000_000}
"""A cent for each output token, so that a request of so many tokens costs so many cents."""


def november(day: int, hour: int = 12, minute: int = 0) -> datetime:
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)


class Month:
    """Acme's month, told step by step."""

    def __init__(self) -> None:
        self.acme: Customer = make_customer("Acme")
        self.price = make_price(at=november(1), **CENTS_PER_TOKEN)

    def use(self, cents: int, at: datetime, *, now: datetime | None = None) -> None:
        event = make_event(
            self.acme, self.price, received_at=at, input_tokens=0, cached_input_tokens=0,
            output_tokens=cents,
        )  # fmt: skip
        assert ingest(make_batch([event]), now=now or at).accepted == 1
        catch_up(now or at)

    def figures(self) -> tuple[int, int, int]:
        """What was funded and posted, and the balance shown, in cents."""
        row = Budget.objects.get(budget_id=self.acme.balance)
        return row.funded_nanos // CENT, row.posted_nanos // CENT, row.balance_nanos // CENT

    def ledger(self, kind: AccountKind) -> int:
        """What the ledger holds in accounts of a kind, in cents, debits positive."""
        return balance_nanos(self.acme.id, kind) // CENT


def test_the_worked_month() -> None:
    month = Month()
    acme = month.acme
    give_credit(
        acme, 500 * CENT, kind=GrantKind.PROMOTIONAL, now=november(1, 0), expires_at=november(20, 0)
    )
    assert month.figures() == (500, 0, 500)
    month.use(125, november(1))
    assert month.figures() == (500, 125, 375)
    record_payment(
        organization_id=acme.id, amount_nanos=5000 * CENT, idempotency_key="card", reason="card",
        actor=Actor.for_system("tests"), now=november(3),
    )  # fmt: skip
    month.use(200, november(10))
    assert month.figures() == (5500, 325, 5175)

    lease = ask_for(acme.balance, 25 * CENT, now=november(19, 23, 59))
    expire_grants(now=november(20, 0))
    assert month.figures() == (5350, 325, 5025)
    month.use(20, november(19, 23, 59), now=november(20, 0, 2))
    take_back(
        gateway_id=GATEWAY, returns=[LeaseReturn(lease.lease_id, 0, closed=True)],
        lineage=database_id(), now=november(20, 0, 2),
    )  # fmt: skip
    assert month.figures() == (5350, 345, 5005)
    expire_grants(now=november(20, 0, 3))
    assert month.figures() == (5345, 345, 5000)
    month.use(10, november(19, 23, 59), now=november(20, 0, 5))
    post_through(november(20).date(), now=november(20, 0, 5))
    assert month.figures() == (5355, 355, 5000)

    month.use(1000, november(25))
    post_through(november(30).date(), now=november(30) + timedelta(days=1))
    assert month.figures() == (5355, 1355, 4000)
    assert {kind: cents for kind in AccountKind if (cents := month.ledger(kind))} == {
        AccountKind.CASH: 5000,
        AccountKind.PROMOTION_EXPENSE: 355,
        AccountKind.CUSTOMER_BALANCE: -4000,
        AccountKind.REVENUE: -1355,
    }
    assert broken_promises() == []


def test_the_worked_request() -> None:
    """600 x $0.15 + 400 x $0.075 + 20 x $0.60 per million: 90,000 + 30,000 + 12,000 nanos."""
    customer, price = make_customer(), make_price(at=november(1))
    event = make_event(customer, price, received_at=november(2))
    ingest(make_batch([msgspec.structs.replace(event)]), now=november(2))
    assert Budget.objects.get(budget_id=customer.balance).posted_nanos == 132_000
