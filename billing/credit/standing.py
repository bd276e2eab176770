"""What customers have paid, told to control, where their limit tier follows from it: at once when a
payment is booked, and hourly whatever else moved (refunds, disputes, grants, years before this)."""

from datetime import datetime
from typing import Any

from django.db import connection, transaction

from billing.credit.signals import payment_recorded
from billing.ledger.causes import AccountKind
from billing.ledger.selectors import balance_nanos
from control.limits.usage_tiers import on_payment
from control.organizations.selectors import locked_organization
from control.outbox.services import enqueue

PAID = "credit.paid"
"""The outbox's word for telling what an organization has paid."""
PAGE = 500

# Organizations whose cash, without the tax in it, is not what control was told.
UNTOLD = """
SELECT paid.organization_id FROM (
    SELECT organization_id, greatest(sum(balance_nanos), 0) AS nanos FROM ledger_account
    WHERE kind IN ('cash', 'tax_payable') GROUP BY organization_id
) AS paid
JOIN organizations_organization AS organization ON organization.id = paid.organization_id
LEFT JOIN limits_organization_usage_tier AS standing
    ON standing.organization_id = paid.organization_id
WHERE paid.nanos <> coalesce(standing.paid_nanos, 0)
ORDER BY paid.organization_id LIMIT %s
"""


def listen() -> None:
    """Hear of payments from now on."""
    payment_recorded.connect(_on_payment, dispatch_uid="billing.credit.standing")


@transaction.atomic
def tell_paid(organization_id: str, *, now: datetime) -> None:
    """Tell control what an organization has paid, taxes and what it got back not counted.

    Raises ObjectNotFound.
    """
    locked_organization(organization_id)
    nanos = balance_nanos(organization_id, AccountKind.CASH, AccountKind.TAX_PAYABLE)
    on_payment(organization_id=organization_id, paid_nanos=max(nanos, 0), now=now)


def tell_untold(*, now: datetime) -> int:
    """Tell it of everybody whom control knows otherwise; return how many."""
    count = 0
    while ids := _untold():
        for organization_id in ids:
            tell_paid(organization_id, now=now)
        count += len(ids)
    return count


def _untold() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(UNTOLD, [PAGE])
        return [row[0] for row in cursor.fetchall()]


def _on_payment(
    sender: object, organization_id: str, payment_id: str, now: datetime, **_: Any
) -> None:
    """Afterwards: who changes an organization locks it before its balance, which is held here."""
    enqueue(kind=PAID, key=payment_id, payload={}, organization_id=organization_id, now=now)
