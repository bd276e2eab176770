"""Limiting, suspending and taking both back. Callers hold the organization, its balance and its
case, locked in this order, and have nothing left to lock: suspending and lifting publish."""

from datetime import datetime

from billing.collection.models import Case
from billing.credit.services.budgets import restore_credit_limit, suspend_credit_limit
from control.organizations.models import Organization, OrganizationStatus
from control.organizations.services import resume_organization, suspend_organization
from control.permissions import Actor

COLLECTION = Actor.for_system("collection")


def limit(case: Case, *, now: datetime) -> None:
    """Serve prepaid money alone: the credit limit is suspended, and what is leased beyond it is
    recalled. Who pays ahead has none, and loses none."""
    case.limited_at = case.limited_at or now
    suspend_credit_limit(case.organization_id, now=now)


def suspend(
    case: Case, organization: Organization, *, actor: Actor, reason: str, now: datetime
) -> None:
    """Refuse all requests; collection sends an email of its own. Where an operator suspended it
    before, that stays theirs to end."""
    if organization.is_active:
        case.suspended_at = now
        suspend_organization(actor=actor, organization=organization, reason=reason, is_mailed=False)


def lift(
    case: Case, organization: Organization, *, actor: Actor, reason: str, now: datetime
) -> None:
    """Serve it as before: with its credit limit, and its keys."""
    was_limited, was_suspended = case.limited_at is not None, case.suspended_at is not None
    case.limited_at = case.suspended_at = None
    if was_limited:
        restore_credit_limit(case.organization_id, now=now)
    if was_suspended and organization.status == OrganizationStatus.SUSPENDED:
        resume_organization(actor=actor, organization=organization, reason=reason, is_mailed=False)
