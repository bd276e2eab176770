"""Keeps each organization in the highest usage tier that its payments reach: when it is created,
when billing reports a payment or a refund, and, page by page, when the tiers themselves change."""

from datetime import datetime
from typing import Any

import structlog
from django.db import transaction

from control.audit import services as audit
from control.errors import ObjectNotFound
from control.feed.services import FeedRef, publish
from control.limits import rate_limits
from control.limits.models import OrganizationUsageTier
from control.organizations.models import Organization
from control.organizations.selectors import locked_organization
from control.organizations.signals import organization_created
from control.permissions import Actor

logger = structlog.get_logger(__name__)

PAGE = 200
"""Organizations per transaction, which locks the feed's numbering at its end."""
PLATFORM = Actor.for_system("usage tiers")


def listen() -> None:
    """Place new organizations in a tier before they are published."""
    organization_created.connect(_on_organization, dispatch_uid="control.limits.usage_tiers")


@transaction.atomic
def on_payment(*, organization_id: str, paid_nanos: int, now: datetime) -> None:
    """Move an organization to the tier that `paid_nanos` reaches: its payments in all, less
    refunds. Gateways hear of a new tier, and of a first payment.

    Raises ObjectNotFound.
    """
    if _set_tier(locked_organization(organization_id), now, paid_nanos):
        publish([FeedRef("organization", organization_id)])


def update_usage_tiers(*, now: datetime) -> int:
    """Move the organizations that are in the wrong tier since tiers changed; return their
    number."""
    count = 0
    while ids := rate_limits.organizations_in_wrong_tier(PAGE):
        count += _update_page(ids, now)
    return count


@transaction.atomic
def _update_page(ids: list[str], now: datetime) -> int:
    moved = [found for found in map(_locked, ids) if found and _set_tier(found, now)]
    publish(FeedRef("organization", organization.id) for organization in moved)
    return len(moved)


def _locked(organization_id: str) -> Organization | None:
    try:
        return locked_organization(organization_id)
    except ObjectNotFound:
        return None


def _set_tier(organization: Organization, now: datetime, paid_nanos: int | None = None) -> bool:
    """Move an organization, whose row is locked, to its tier; return whether its record changed,
    by its tier or by its first payment."""
    status, _ = OrganizationUsageTier.objects.select_related("tier").get_or_create(
        organization=organization, defaults={"since": now}
    )
    had_paid = status.has_paid
    if paid_nanos is not None:
        status.paid_nanos = paid_nanos
    due = rate_limits.eligible_tier(status.paid_nanos)
    before, has_moved = status.tier, status.tier != due
    if has_moved:
        status.tier, status.since = due, now
        audit.record_about(
            PLATFORM,
            "organization.usage_tier_changed",
            organization,
            before={"usage_tier": before and before.name},
            after={"usage_tier": due and due.name},
            paid_nanos=status.paid_nanos,
        )
    status.save()
    return has_moved or had_paid != status.has_paid


def _on_organization(sender: object, organization: Organization, actor: Actor, **_: Any) -> None:
    _set_tier(organization, organization.created_at)
