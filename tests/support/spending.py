"""Charges as ingest and the postings' follower make them, without events; and what must follow."""

from datetime import date, datetime
from typing import Any

from billing.credit import integrity as credit
from billing.credit.models import CreditGrant, UnpostedUsage
from billing.credit.selectors import balance_nanos
from billing.credit.services.budgets import open_balance
from billing.credit.services.draws import post_unposted
from billing.credit.services.leases import charge
from billing.ledger import integrity as ledger
from billing.ledger.integrity import run
from billing.ledger.models import AccountKind
from billing.ledger.selectors import balance_nanos as account_nanos
from tests.support.books import differences
from tests.support.usage import NOW, Customer

TODAY = NOW.date()


def charge_to(customer: Customer, nanos: int) -> None:
    """Charge the balance, as ingest does; no follower has read it yet."""
    row = open_balance(customer.id)
    assert row is not None
    charge({row: nanos}, {})


def follow(
    customer: Customer, nanos: int, before: datetime | None = None, day: date = TODAY
) -> None:
    """Hand a charge to the postings, as their follower does."""
    UnpostedUsage.objects.create(
        organization_id=customer.id, accounted_on=day, received_before=before, nanos=nanos
    )


def use(customer: Customer, nanos: int, before: datetime | None = None, day: date = TODAY) -> None:
    charge_to(customer, nanos)
    follow(customer, nanos, before, day)


def settle(*customers: Customer, now: datetime = NOW, **until: Any) -> int:
    return post_unposted([one.id for one in customers], now=now, **until)


def remaining(*given: CreditGrant) -> list[int]:
    found = {grant.id: grant for grant in CreditGrant.objects.select_related("account")}
    return [found[grant.id].remaining_nanos for grant in given]


def _ledger_balance(customer: Customer) -> int:
    """Return credit less debt as the ledger has them."""
    credit = (AccountKind.CUSTOMER_BALANCE, AccountKind.PROMOTIONAL_CREDIT)
    return -account_nanos(customer.id, *credit, AccountKind.ACCOUNTS_RECEIVABLE)


def agree(customer: Customer) -> bool:
    """Tell whether the books and the balance are of one mind, and every check of both holds."""
    checks = (*credit.CHECKS, *ledger.CHECKS)
    assert [check.sentence for check in checks if not run(check).holds] == []
    return _ledger_balance(customer) == balance_nanos(customer.id) and differences() == []
