"""An organization that owes an invoice, and days that pass."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core import mail
from django.core.mail import EmailMultiAlternatives
from django.utils import timezone

from billing.collection.models import Case, Step
from billing.collection.services.looking import look
from billing.credit.services.payments import record_payment
from billing.invoicing.models import Invoice
from control.outbox.services import deliver_due
from control.publish.selectors import last_record
from control.tenants.models import BillingMode
from control.tenants.services import set_organization_terms
from tests.support.invoicing import (
    MILLION_CENTS,
    OPERATOR,
    close,
    customer_of,
    finish_month,
    october,
    use_cents,
)
from tests.support.organizations import House
from tests.support.usage import make_price

DUE = datetime(2026, 11, 15, 9, tzinfo=UTC)
"""When the invoice of October is due, at the hour of the first step."""
CENT = 10_000_000


def owe(*houses: House, cents: int = 1000, is_postpaid: bool = True) -> list[Invoice]:
    """Return an invoice of October for each organization, which is due on DUE."""
    price = make_price("by-the-cent", at=october(1), **MILLION_CENTS)
    for house in houses:
        if is_postpaid:
            set_organization_terms(
                actor=OPERATOR, organization=house.organization, spend_limit_nanos=None, weight=1,
                billing_mode=BillingMode.POSTPAID,
            )  # fmt: skip
        use_cents(customer_of(house), price, cents, october(5))
    finish_month()
    close()
    return [Invoice.objects.get(organization_id=house.id) for house in houses]


def day(number: int) -> datetime:
    """Return the hour of steps so many days after the invoices are due."""
    return DUE + timedelta(days=number)


def pass_days(last: int, first: int = 0) -> None:
    """Let days pass, with a look at each."""
    for number in range(first, last + 1):
        look(now=day(number))


def pay(house: House, cents: int = 1000, *, at: datetime, key: str = "") -> None:
    """Record a payment as the operator does."""
    record_payment(
        organization_id=house.id, amount_nanos=cents * CENT, actor=OPERATOR, now=at,
        idempotency_key=key or f"{at}", reason="bank transfer",
    )  # fmt: skip


def case_of(house: House) -> Case:
    return Case.objects.select_related("organization").get(pk=house.id)


def state_of(house: House) -> str:
    return case_of(house).state


def names(house: House) -> list[tuple[str, str]]:
    """Return what was done, oldest first."""
    steps = Step.objects.filter(organization_id=house.id).order_by("taken_at", "pk")
    return [(step.name.partition(":")[0], step.outcome) for step in steps]


def published(house: House) -> str:
    """Return what gateways are told of an organization."""
    record = last_record("organization", house.id) or "{}"
    return str(json.loads(record)["status"])


def mails() -> list[EmailMultiAlternatives]:
    """Deliver all that was decided, and return every mail of the test, the oldest first."""
    deliver_due(now=max(day(200), timezone.now()))
    return mail.outbox


def decide(verb: Any, house: House, *, at: datetime | None = None, **more: Any) -> None:
    """Carry out an operator's decision."""
    values = {"actor": OPERATOR, "reason": "they called", "now": at or timezone.now(), **more}
    verb(organization_id=house.id, **values)
