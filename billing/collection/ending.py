"""The end of an organization, as far as money goes: none that owes any ends, and nothing is taken
from it afterwards. Its books stay."""

from datetime import datetime
from typing import Any

from django.utils.translation import gettext

from billing.collection.selectors import on_its_way_cents
from billing.credit.selectors import balance_nanos, owed_nanos
from billing.invoicing import selectors as invoicing
from billing.payments.models import AutoTopUp
from control.feed.services import FeedRef
from control.organizations.models import Organization
from control.organizations.signals import (
    DeletionEffect,
    organization_deleted,
    organization_deletion_previewed,
)
from serving.contract.money import CENT_NANOS, format_dollars


def listen() -> None:
    """Have a word in the end of organizations."""
    organization_deletion_previewed.connect(
        _on_end_asked, dispatch_uid="billing.collection.end_asked"
    )
    organization_deleted.connect(_on_end, dispatch_uid="billing.collection.end")


def to_pay_nanos(organization_id: str) -> int:
    """Return what an organization owes, invoiced or not: usage beyond its credit, and what is open
    of its invoices with their tax."""
    standings = invoicing.standings(invoicing.invoices(organization_id))
    open_nanos = sum(one.open_nanos for one in standings if not one.is_settled)
    return max(-balance_nanos(organization_id), owed_nanos(organization_id), open_nanos, 0)


def _on_end_asked(
    sender: object, organization: Organization, now: datetime, **_: Any
) -> list[DeletionEffect]:
    found = []
    owed = to_pay_nanos(organization.id)
    if owed:
        words = gettext(
            "%(amount)s is owed. Pay it first; what is not yet invoiced can be paid once it is."
        ) % {"amount": format_dollars(owed)}
        found.append(DeletionEffect(words, is_obstacle=True))
    coming = on_its_way_cents(organization.id, now)
    if coming:
        words = gettext("A payment of %(amount)s is pending. Wait until it has arrived.") % {
            "amount": format_dollars(coming * CENT_NANOS)
        }
        found.append(DeletionEffect(words, is_obstacle=True))
    credit = balance_nanos(organization.id)
    if credit > 0:
        words = gettext(
            "%(amount)s of credit is left and can't be used after the deletion. To get back what"
            " you paid and did not use, contact support first."
        ) % {"amount": format_dollars(credit)}
        found.append(DeletionEffect(words))
    return [*found, DeletionEffect(gettext("Invoices, usage records and the audit log are kept."))]


def _on_end(sender: object, organization: Organization, **_: Any) -> list[FeedRef]:
    AutoTopUp.objects.filter(organization_id=organization.id).update(is_on=False)
    return []
