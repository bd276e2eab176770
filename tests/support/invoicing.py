"""A month of usage that is over, closed and followed, and what its close must leave behind."""

from datetime import UTC, date, datetime
from typing import Any

from billing.invoicing.models import BillingProfile, Close, Invoice
from billing.invoicing.periods import Period
from billing.invoicing.services.closing import Outcome, close_month
from billing.metering.ingest import ingest
from control.actor import system
from control.prices.models import Price
from tests.support.following import finish
from tests.support.organizations import House
from tests.support.usage import Customer, broken_promises, make_batch, make_event, make_key

OPERATOR = system("tests")
OCTOBER = Period(date(2026, 10, 1))
NOVEMBER = Period(date(2026, 11, 1))
AFTER = datetime(2026, 11, 1, 2, tzinfo=UTC)
"""When October's last day is closed."""
MILLION_CENTS = {"input_nanos": 0, "cached_input_nanos": 0, "output_nanos": 10_000_000_000_000}
"""A cent for each output token."""


def october(day: int, hour: int = 12, minute: int = 0) -> datetime:
    return datetime(2026, 10, day, hour, minute, tzinfo=UTC)


def use(
    customer: Customer, price: Price, at: datetime, *, now: datetime | None = None, **changes: Any
) -> None:
    """Ingest one request."""
    event = make_event(customer, price, received_at=at, **changes)
    assert ingest(make_batch([event]), now=now or at).accepted == 1


def use_cents(
    customer: Customer, price: Price, cents: int, at: datetime, *, now: datetime | None = None
) -> None:
    """Ingest a request that costs so many cents, at a price of MILLION_CENTS."""
    use(customer, price, at, now=now, input_tokens=0, cached_input_tokens=0, output_tokens=cents)


def finish_month(now: datetime = AFTER) -> None:
    """Close, follow, post and seal every day that is over."""
    finish(now)


def close(now: datetime = AFTER, period: Period = OCTOBER, **options: Any) -> Outcome:
    return close_month(period=period, actor=OPERATOR, now=now, **options)


def invoice(customer: Customer, period: Period = OCTOBER) -> Invoice:
    return Invoice.objects.get(organization_id=customer.id, starts_on=period.starts_on)


def profile(customer: Customer, **fields: Any) -> BillingProfile:
    return BillingProfile.objects.create(organization=customer.organization, **fields)


def sound() -> bool:
    """Tell whether every check of the house holds."""
    assert broken_promises() == []
    return True


def is_finished(period: Period = OCTOBER) -> bool:
    return Close.objects.filter(starts_on=period.starts_on, finished_at__isnull=False).exists()


def customer_of(house: House) -> Customer:
    """Return a house as the customer that usage is reported of."""
    return Customer(house.organization, house.project, make_key(house.project))
