"""Where customers pay by bank transfer, they ask the operator for an invoice of credit to buy."""

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext

from billing.invoicing.selectors import billing_profile
from control.admin.base import row_url
from control.audit import services as audit
from control.audit.models import AuditEvent
from control.errors import Conflict, TooManyRequests
from control.mail.services import absolute, send_mail
from control.operators.selectors import finance_addresses
from control.organizations.models import Organization
from control.organizations.selectors import locked_organization
from control.permissions import Actor, Permission, require
from serving.contract.money import CENT_NANOS, format_dollars

ACTION = "invoice.requested"
A_DAY = 5
"""Requests of one organization in 24 hours."""
EVENTS_MAX = 1_000
"""The audit events of an organization that are searched for earlier requests."""


@transaction.atomic
def request_invoice(
    *,
    organization: Organization,
    actor: Actor,
    amount_cents: int,
    note: str,
    idempotency_key: str,
    now: datetime,
) -> None:
    """Ask the operator, by email, for an invoice of so much credit. The same key asks once.

    Raises TooManyRequests after A_DAY in a day, Conflict where payments go through Stripe, the key
    asked for something else, or the operator has no address.
    """
    require(actor, organization.id, Permission.BILLING_WRITE)
    if settings.CONFIG.stripe is not None:
        raise Conflict(gettext("Invoices can't be requested any more. Add credits here instead."))
    organization = locked_organization(organization.id)
    details = {"amount_cents": amount_cents, "note": note}
    asked = _recent_requests(organization.id)
    for one in asked:
        if one.target_id != idempotency_key:
            continue
        if one.details == details:
            return
        raise Conflict(
            gettext("You requested another invoice with this form. Reload the page first."),
            code="idempotency_conflict",
        )
    if sum(one.created_at > now - timedelta(days=1) for one in asked) >= A_DAY:
        raise TooManyRequests(
            gettext("Invoices were requested %(count)d times today. Try again tomorrow.")
            % {"count": A_DAY},
            code="rate_limit_exceeded",
            retry_after_seconds=86_400,
        )
    addresses = operator_addresses()
    if not addresses:
        raise Conflict(gettext("Nobody can be asked: the operator has no email address here."))
    audit.record(
        actor=actor,
        action=ACTION,
        target_kind="invoice_request",
        target_id=idempotency_key,
        target_name=organization.name,
        organization_id=organization.id,
        details=details,
    )
    send_mail(
        template="invoice_request",
        to=addresses,
        context={
            "organization": organization.name,
            "organization_id": organization.id,
            "amount": format_dollars(amount_cents * CENT_NANOS),
            "note": note,
            "requester": actor.name,
            "recipient": billing_profile(organization).name,
            "organization_url": _admin("organizations_organization", organization.id),
            "payment_url": _payment_url(organization),
        },
        key=f"invoice-request:{organization.id}:{idempotency_key}",
        organization_id=organization.id,
        now=now,
    )


def _recent_requests(organization_id: str) -> list[AuditEvent]:
    """Return the requests among an organization's latest audit events."""
    latest = AuditEvent.objects.filter(organization_id=organization_id).order_by("-id")
    ids = latest.values("id")[:EVENTS_MAX]
    return list(AuditEvent.objects.filter(id__in=ids, action=ACTION))


def operator_addresses() -> list[str]:
    """Return where requests for invoices go: the support contact, or else the operators who keep
    the books."""
    contact = settings.CONFIG.support_email
    return [contact] if contact else finance_addresses()


def _admin(table: str, row_id: str) -> str:
    return absolute(row_url(f"admin:{table}_change", row_id))


def _payment_url(organization: Organization) -> str:
    query = urlencode({"organization": organization.id})
    return absolute(f"{reverse('admin:credit_payment_add')}?{query}")
