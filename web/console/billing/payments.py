"""The list of payments: Stripe's, those that operators recorded, and credit that expired."""

from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.credit.models import CreditGrant, GrantKind, Payment
from billing.credit.selectors import expired_grants
from billing.credit.selectors import payments as booked_payments
from billing.payments.models import PaymentStatus, StripePayment
from billing.payments.selectors import nanos, payments
from web.console.base import PageContext

ROWS = 25
EXPIRED = {
    GrantKind.PROMOTIONAL: _("Promotional credit expired"),
    GrantKind.PREPAID: _("Prepaid credit expired"),
}
BADGES = {
    PaymentStatus.SUCCEEDED: "good",
    PaymentStatus.FAILED: "bad",
    PaymentStatus.REQUIRES_ACTION: "warn",
    PaymentStatus.OPEN: "warn",
}


@dataclass(frozen=True, slots=True)
class PaymentRow:
    """One payment in the list, or credit that expired."""

    at: datetime
    what: str
    method: str
    nanos: int
    status: str
    badge: str = ""
    why: str = ""
    url: str = ""
    receipt_url: str = ""


def payment_rows(page: PageContext, mode: str) -> list[PaymentRow]:
    """Return an organization's latest payments and expiries of credit, newest first."""
    stripe = [_stripe_row(page, each) for each in payments(page.organization.id, mode)[:ROWS]]
    recorded = booked_payments(page.organization).exclude(idempotency_key__startswith="stripe:")
    expired = expired_grants(page.organization)[:ROWS]
    rows = [
        *stripe,
        *(_recorded_row(each) for each in recorded[:ROWS]),
        *(_expired_row(each) for each in expired),
    ]
    return sorted(rows, key=lambda row: row.at, reverse=True)[:ROWS]


def _stripe_row(page: PageContext, payment: StripePayment) -> PaymentRow:
    return PaymentRow(
        at=payment.created_at,
        what=payment.get_purpose_display(),
        method=str(payment.method or gettext("Stripe's page")),
        nanos=nanos(payment.total_cents),
        status=payment.get_status_display(),
        badge=BADGES.get(PaymentStatus(payment.status), ""),
        why=payment.failure_words,
        url=page.url("billing_payment", payment.id),
        receipt_url=payment.receipt_url,
    )


def _recorded_row(payment: Payment) -> PaymentRow:
    return PaymentRow(
        at=payment.received_at,
        what=payment.reason,
        method=gettext("Recorded by the operator"),
        nanos=payment.amount_nanos,
        status=gettext("Paid"),
        badge="good",
    )


def _expired_row(grant: CreditGrant) -> PaymentRow:
    return PaymentRow(
        at=grant.expires_at or grant.granted_at,
        what=str(EXPIRED[GrantKind(grant.kind)]),
        method="",
        nanos=-grant.expired_nanos,
        status=gettext("Expired"),
        badge="warn",
    )
