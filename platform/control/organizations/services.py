"""Create, change, suspend and resume organizations, and say what a suspension does and why there is
one."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext, ngettext

from control.accounts.models import User, locked_user
from control.audit import services as audit
from control.db.row_changes import apply_changes, differences, snapshot
from control.errors import Conflict, InvalidValue
from control.feed.services import FeedRef, publish
from control.mail.services import absolute, send_mail
from control.organizations import selectors, validators
from control.organizations.models import (
    WEIGHT_MAX,
    BillingMode,
    Membership,
    Organization,
    OrganizationStatus,
    Project,
)
from control.organizations.signals import (
    idempotency_keys_refused,
    limits_changed,
    organization_created,
)
from control.permissions import Actor, Permission, Role, require, require_operator
from serving.contract.budget import balance_budget_id, limit_budget_id

DEFAULT_PROJECT_NAME = "Default"
ORGANIZATIONS_MAX = 50


@transaction.atomic
def create_organization(
    *,
    actor: Actor,
    name: str,
    owner: User | None,
    billing_mode: str = BillingMode.PREPAID,
) -> Organization:
    """Create an organization with its owner and a default project, and send
    `organization_created`. Operators may leave the owner to an invitation.

    Raises Conflict if the owner already has ORGANIZATIONS_MAX, NotPermitted for an operator who may
    not write customers, and for anybody else without an owner.
    """
    if actor.is_operator or owner is None:
        require_operator(actor, Permission.CUSTOMERS_WRITE)
    else:
        owner = locked_user(owner.pk)
        if selectors.owned_count(owner) >= ORGANIZATIONS_MAX:
            raise Conflict(f"You can own at most {ORGANIZATIONS_MAX} organizations.")
    organization = Organization.objects.create(
        name=validators.name(name), billing_mode=billing_mode
    )
    if owner is not None:
        Membership.objects.create(organization=organization, user=owner, role=Role.OWNER)
    project = Project.objects.create(organization=organization, name=DEFAULT_PROJECT_NAME)
    values = snapshot(organization, ("name", "billing_mode"))
    if owner is not None:
        values["owner"] = owner.email
    audit.record_about(actor, "organization.created", organization, **values)
    # Before publishing: receivers take row locks, and the feed's lock must come last.
    organization_created.send(Organization, organization=organization, actor=actor)
    publish([FeedRef("organization", organization.id), FeedRef("project", project.id)])
    return organization


@transaction.atomic
def rename_organization(*, actor: Actor, organization: Organization, name: str) -> Organization:
    """Rename an organization. Nothing is published: gateways do not use the name."""
    require(actor, organization.id, Permission.ORGANIZATION_UPDATE)
    organization = selectors.locked_organization(organization.id)
    before, organization.name = organization.name, validators.name(name)
    organization.save(update_fields=["name"])
    values = differences({"name": before}, {"name": organization.name})
    audit.record_about(actor, "organization.renamed", organization, **values)
    return organization


@transaction.atomic
def set_allowed_regions(
    *, actor: Actor, organization: Organization, allowed_regions: Sequence[str]
) -> Organization:
    """Bind an organization's requests to the regions of fleets, which are published to gateways; an
    empty list allows any."""
    require_operator(actor, Permission.CUSTOMERS_WRITE)
    organization = selectors.locked_organization(organization.id)
    regions = sorted(set(allowed_regions))
    if changed := apply_changes(organization, {"allowed_regions": regions}):
        audit.record_about(actor, "organization.regions_set", organization, **changed)
        publish([FeedRef("organization", organization.id)])
    return organization


@transaction.atomic
def set_organization_limit(
    *, actor: Actor, organization: Organization, spend_limit_nanos: int | None
) -> Organization:
    """Set the monthly spending limit (UTC, nano-dollars) of a prepaid organization; None removes
    it.

    Raises NotPermitted for a postpaid one, whose monthly limit operators set.
    """
    require(actor, organization.id, Permission.LIMITS_WRITE)
    organization = selectors.locked_organization(organization.id)
    if organization.billing_mode == BillingMode.POSTPAID:
        require_operator(actor, Permission.FINANCE_WRITE)
    return _set_terms(actor, organization, spend_limit_nanos=spend_limit_nanos)


@transaction.atomic
def set_organization_terms(
    *,
    actor: Actor,
    organization: Organization,
    billing_mode: str,
    spend_limit_nanos: int | None,
    weight: int,
    credit_limit_nanos: int | None = None,
) -> Organization:
    """Set the billing mode, the monthly limit (nano-dollars), the share of a busy pool, and the
    credit limit, which None leaves as it is."""
    require_operator(actor, Permission.FINANCE_WRITE)
    if billing_mode not in BillingMode.values:
        raise InvalidValue(
            f"billing_mode must be one of {', '.join(BillingMode.values)}.", param="billing_mode"
        )
    if not 1 <= weight <= WEIGHT_MAX:
        raise InvalidValue(f"weight is {weight}; wanted 1 to {WEIGHT_MAX}.", param="weight")
    organization = selectors.locked_organization(organization.id)
    if credit_limit_nanos is None:
        credit_limit_nanos = organization.credit_limit_nanos
    return _set_terms(
        actor,
        organization,
        billing_mode=billing_mode,
        credit_limit_nanos=validators.credit_limit_nanos(credit_limit_nanos),
        spend_limit_nanos=spend_limit_nanos,
        weight=weight,
    )


@transaction.atomic
def set_idempotency_enabled(
    *, actor: Actor, organization: Organization, idempotency_enabled: bool
) -> Organization:
    """Set whether an organization's requests may carry idempotency keys. Disabling erases the
    stored responses at once."""
    require(actor, organization.id, Permission.DATA_RETENTION_WRITE)
    organization = selectors.locked_organization(organization.id)
    before = organization.idempotency_enabled
    if before == idempotency_enabled:
        return organization
    organization.idempotency_enabled = idempotency_enabled
    organization.save(update_fields=["idempotency_enabled"])
    audit.record_about(
        actor, "organization.idempotency_updated", organization,
        **differences(
            {"idempotency_enabled": before}, {"idempotency_enabled": idempotency_enabled}
        ),
    )  # fmt: skip
    if not idempotency_enabled:
        idempotency_keys_refused.send(Organization, organization=organization)
    publish([FeedRef("organization", organization.id)])
    return organization


@transaction.atomic
def suspend_organization(
    *, actor: Actor, organization: Organization, reason: str, is_mailed: bool = True
) -> Organization:
    """Suspend an organization: its keys are refused at once. Members can still read, and are told
    the reason; owners get an email, unless the caller sends its own.

    Raises InvalidValue without a reason.
    """
    reason = reason.strip()
    if not reason:
        raise InvalidValue("Give a reason: the organization is told.", param="reason")
    organization = _set_status(actor, organization, OrganizationStatus.SUSPENDED, reason)
    if is_mailed:
        _tell_owners("organization_suspended", organization, reason=reason, now=timezone.now())
    publish([FeedRef("organization", organization.id)])
    return organization


@transaction.atomic
def resume_organization(
    *, actor: Actor, organization: Organization, reason: str = "", is_mailed: bool = True
) -> Organization:
    """End a suspension: keys that were not revoked work again. Owners get an email, unless the
    caller sends its own."""
    organization = _set_status(actor, organization, OrganizationStatus.ACTIVE, reason)
    if is_mailed:
        _tell_owners("organization_resumed", organization, reason="", now=timezone.now())
    publish([FeedRef("organization", organization.id)])
    return organization


def suspension_effects(organization: Organization) -> list[str]:
    """Return what follows if an organization is suspended now, a sentence each."""
    now = timezone.now()
    working = Q(revoked_at__isnull=True) & (Q(expires_at__isnull=True) | Q(expires_at__gt=now))
    key_count = organization.keys.filter(working).count()
    member_count = selectors.members(organization).count()
    owners = ", ".join(selectors.owner_addresses(organization.id))
    if owners:
        mail = gettext("An email with the reason goes to its owners: %(owners)s.")
    else:
        mail = gettext("No owner has a verified email address, so nobody is told by email.")
    return [
        ngettext(
            "%(count)d API key is refused within a second, with 403 organization_suspended.",
            "%(count)d API keys are refused within a second, with 403 organization_suspended.",
            key_count,
        )
        % {"count": key_count},
        gettext("Requests under way are finished and charged."),
        ngettext(
            "%(count)d member can still sign in, read and pay, but create no new keys.",
            "%(count)d members can still sign in, read and pay, but create no new keys.",
            member_count,
        )
        % {"count": member_count},
        gettext("Every page of its console shows the reason."),
        mail % {"owners": owners},
        gettext("Nothing is deleted. The keys work again once an operator resumes it."),
    ]


def why_suspended(organization: Organization) -> str:
    """Return why the operator suspended an organization, and whom to ask, for its members."""
    words = []
    if reason := organization.suspended_reason:
        words.append(gettext("Reason: %(reason)s.") % {"reason": reason.rstrip(".")})
    words.append(whom_to_ask())
    return " ".join(words)


def whom_to_ask() -> str:
    """Return a sentence on how customers reach the operator."""
    if contact := settings.CONFIG.support_email:
        return gettext("If you have questions, write to %(contact)s.") % {"contact": contact}
    return gettext("If you have questions, contact the operator of this platform.")


def _set_status(actor: Actor, organization: Organization, status: str, reason: str) -> Organization:
    require_operator(actor, Permission.CUSTOMERS_WRITE)
    organization = selectors.locked_organization(organization.id)
    if organization.status == OrganizationStatus.DELETED:
        raise Conflict("The organization is deleted.")
    if organization.status == status:
        raise Conflict(f"The organization is already {status}.")
    organization.status = status
    organization.suspended_reason = "" if organization.is_active else reason
    organization.save(update_fields=["status", "suspended_reason"])
    verb = "resumed" if organization.is_active else "suspended"
    audit.record_about(actor, f"organization.{verb}", organization, reason=reason)
    return organization


def _set_terms(actor: Actor, organization: Organization, **terms: Any) -> Organization:
    validators.spend_limit_nanos(terms["spend_limit_nanos"])
    before = {field: getattr(organization, field) for field in terms}
    for field, value in terms.items():
        setattr(organization, field, value)
    organization.save(update_fields=list(terms))
    audit.record_about(
        actor, "organization.terms_updated", organization, **differences(before, terms)
    )
    limits_changed.send(Organization, limits=_limits(organization), now=timezone.now())
    publish([FeedRef("organization", organization.id)])
    return organization


def _limits(organization: Organization) -> dict[str, int | None]:
    """Return the limits of both budgets: the credit limit of the balance, and the monthly one."""
    return {
        balance_budget_id(organization.id): organization.debt_limit_nanos,
        limit_budget_id(organization.id): organization.spend_limit_nanos,
    }


def _tell_owners(template: str, organization: Organization, *, reason: str, now: datetime) -> None:
    """Email the owners that their organization is suspended, or works again."""
    send_mail(
        template=template,
        to=selectors.owner_addresses(organization.id),
        context={
            "organization": organization.name,
            "why": reason,
            "support": settings.CONFIG.support_email,
            "url": absolute(f"/{organization.id}"),
        },
        key=f"{template}:{organization.id}:{now.isoformat()}",
        organization_id=organization.id,
        now=now,
    )
