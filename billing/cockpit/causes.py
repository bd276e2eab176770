"""What made a line of a statement, in words, with a link to it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from django.db.models import Q
from django.urls import reverse
from django.utils.translation import gettext

from billing.cockpit.statement import StatementLine
from billing.credit.models import CreditGrant, Payment
from billing.invoicing.models import CreditNote, Invoice
from billing.ledger.causes import Cause
from control.admin.base import row_url

GRANT = "admin:credit_creditgrant_change"
PAYMENT = "admin:credit_payment_change"
INVOICE = "admin:invoicing_invoice_change"
NOTE = "admin:invoicing_creditnote_change"
TRANSACTION = "admin:ledger_transaction_change"
EVENTS = "admin:metering_usageevent_changelist"
OF_GRANTS = ("grant", "expiry", "grant-reversal")
"""What the sources begin with whose second part is a grant."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a line is of: a title, more words where there are any, and where it is looked at: the
    page of a row, or a list with filters. A file asks for no address: it is made when it is."""

    title: str
    words: str
    page: str
    row_id: int | str | None = None
    filters: Mapping[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The address where it is looked at."""
        if self.row_id is not None:
            return row_url(self.page, self.row_id)
        return f"{reverse(self.page)}?{urlencode(self.filters)}"


@dataclass(frozen=True, slots=True)
class Known:
    """What the lines of a page name."""

    organization_id: str
    grants: dict[str, CreditGrant]
    payments: dict[str, Payment]
    """By `organization:key`, and by the grant that each made."""
    invoices: dict[str, Invoice]
    notes: dict[str, CreditNote]

    def made(self, line: StatementLine) -> Made:
        """Return what made a line."""
        head, _, rest = line.source.partition(":")
        return (
            self._payment(line, rest)
            or self._document(head, rest)
            or self._grant(line, head, rest)
            or self._usage(line)
            or Made(str(Cause(line.cause).label), "", TRANSACTION, line.transaction_id)
        )

    def _payment(self, line: StatementLine, rest: str) -> Made | None:
        payment = self.payments.get(rest) if line.cause in ("payment", "tax") else None
        if payment is None:
            return None
        title = gettext("Tax on a payment") if line.cause == "tax" else gettext("Payment")
        return Made(title, payment.reason, PAYMENT, payment.pk)

    def _document(self, head: str, rest: str) -> Made | None:
        invoice = self.invoices.get(rest.removeprefix("invoice:"))
        if invoice is not None:
            title = gettext("Rounding of invoice %(number)s")
            if head == "tax":
                title = gettext("Tax on invoice %(number)s")
            return Made(title % {"number": invoice.number}, "", INVOICE, invoice.pk)
        note = self.notes.get(rest) if head == "credit-note" else None
        if note is not None:
            title = gettext("Credit note %(number)s") % {"number": note.number}
            return Made(title, note.reason, NOTE, note.pk)
        return None

    def _grant(self, line: StatementLine, head: str, rest: str) -> Made | None:
        grant_id = rest.partition(":")[0] if head in OF_GRANTS else ""
        grant = self.grants.get(grant_id)
        if grant is None:
            return None
        return Made(str(Cause(line.cause).label), grant.reason, GRANT, grant.pk)

    def _usage(self, line: StatementLine) -> Made | None:
        if line.cause != Cause.USAGE:
            return None
        day = line.accounted_on.isoformat()
        filters = {"q": self.organization_id, "accounted_on": day}
        title = gettext("Usage of %(day)s") % {"day": day}
        return Made(title, "", EVENTS, filters=filters)


def known(organization_id: str, lines: Iterable[StatementLine]) -> Known:
    """Return what lines name, by a few questions however many they are."""
    parts = [line.source.split(":") for line in lines]
    grant_ids = {part[1] for part in parts if part[0] in OF_GRANTS}
    invoice_ids = {part[2] for part in parts if part[1:2] == ["invoice"]}
    note_ids = {part[1] for part in parts if part[0] == "credit-note"}
    return Known(
        organization_id=organization_id,
        grants=CreditGrant.objects.in_bulk(grant_ids),
        payments=_payments(organization_id, parts, grant_ids),
        invoices=Invoice.objects.in_bulk(invoice_ids),
        notes=CreditNote.objects.in_bulk(note_ids),
    )


def _payments(
    organization_id: str, parts: Sequence[list[str]], grant_ids: set[str]
) -> dict[str, Payment]:
    keys = {":".join(part[2:]) for part in parts if part[0] in ("payment", "tax")}
    named = Q(idempotency_key__in=keys) | Q(grant_id__in=grant_ids)
    found = list(Payment.objects.filter(named, organization_id=organization_id))
    by_key = {f"{organization_id}:{row.idempotency_key}": row for row in found}
    return by_key | {row.grant_id: row for row in found if row.grant_id is not None}
