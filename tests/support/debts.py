"""Customers with debts, payments and credit of some months, for the pages on the books."""

from datetime import datetime, timedelta

from billing.credit.models import GrantKind
from billing.credit.services.grants import grant_credit
from billing.credit.services.payments import record_payment
from billing.invoicing.services.closing import close_month
from serving.contract.money import CENT_NANOS
from tests.support.invoicing import AFTER, MILLION_CENTS, OCTOBER, OPERATOR, finish_month, october
from tests.support.invoicing import use_cents as use
from tests.support.usage import Customer, make_customer, make_price

LONG = "Gesellschaft für angewandte Strömungsmaschinen-Forschung mbH & Co. <KG>"


def make_debts() -> list[Customer]:
    """Book October's usage of some customers, invoice it, and let some of them pay."""
    large, small = (
        make_price(name, at=october(1), **MILLION_CENTS) for name in ("large-70b", "small-8b")
    )
    names = ("Acme Robotics", "Globex", "Initech", LONG)
    customers = [make_customer(name) for name in names]
    pay(customers[0], 250_000, october(1), key="ahead")
    for day in range(2, 28):
        use(customers[0], large, 700 + 13 * day, october(day))
        use(customers[1], small, 1_999 + 7 * day, october(day))
        use(customers[3], large, 40 * day, october(day))
    finish_month()
    close_month(period=OCTOBER, actor=OPERATOR, now=AFTER)
    pay(customers[1], 20_000, AFTER + timedelta(days=2), key="part")
    for customer in customers:
        favour(customer, 2_500, AFTER)
    return customers


def pay(customer: Customer, cents: int, now: datetime, *, key: str) -> None:
    """Record a bank transfer."""
    record_payment(
        actor=OPERATOR, organization_id=customer.id, amount_nanos=cents * CENT_NANOS,
        idempotency_key=key, reason="Bank transfer of the month", now=now,
    )  # fmt: skip


def favour(customer: Customer, cents: int, now: datetime) -> None:
    """Grant promotional credit that expires."""
    grant_credit(
        actor=OPERATOR, organization_id=customer.id, kind=GrantKind.PROMOTIONAL,
        amount_nanos=cents * CENT_NANOS, idempotency_key="favour", reason="Conference code",
        expires_at=now + timedelta(days=60), now=now,
    )  # fmt: skip
