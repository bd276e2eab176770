"""What made a line of a statement, in words, with a link to it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

from django.db.models import Q
from django.urls import reverse

from billing.cockpit.statement import StatementLine
from billing.credit.models import CreditGrant, Payment
from billing.invoicing.models import CreditNote, Invoice
from billing.ledger.causes import (
    PAYMENT_INTO_CREDIT,
    PAYMENT_OF_DEBT,
    PAYMENT_TAX,
    USAGE,
    Cause,
    PostingRule,
    rule_of,
)
from control.admin.base import row_url

GRANT = "admin:credit_creditgrant_change"
PAYMENT = "admin:credit_payment_change"
INVOICE = "admin:invoicing_invoice_change"
NOTE = "admin:invoicing_creditnote_change"
TRANSACTION = "admin:ledger_transaction_change"
EVENTS = "admin:metering_usageevent_changelist"
OF_PAYMENTS = (PAYMENT_OF_DEBT, PAYMENT_TAX)
"""The rules whose sources name the key of a payment."""


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
    """By idempotency key."""
    payments_by_grant: dict[str, Payment]
    """By the grant that each made."""
    invoices: dict[str, Invoice]
    notes: dict[str, CreditNote]

    def made(self, line: StatementLine) -> Made:
        """Return what made a line."""
        label = str(Cause(line.cause).label)
        found = rule_of(line.cause, line.source)
        if found is not None:
            rule, names = found
            title = str(rule.title) or label
            if rule == USAGE:
                return self._usage(title, line)
            if payment := self._payment(rule, names):
                return Made(title, payment.reason, PAYMENT, payment.pk)
            if grant := self.grants.get(names.get("grant", "")):
                return Made(title, grant.reason, GRANT, grant.pk)
            if invoice := self.invoices.get(names.get("invoice", "")):
                return Made(title % {"number": invoice.number}, "", INVOICE, invoice.pk)
            if note := self.notes.get(names.get("note", "")):
                return Made(title % {"number": note.number}, note.reason, NOTE, note.pk)
        return Made(label, "", TRANSACTION, line.transaction_id)

    def _payment(self, rule: PostingRule, names: Mapping[str, str]) -> Payment | None:
        if rule == PAYMENT_INTO_CREDIT:
            return self.payments_by_grant.get(names["grant"])
        return self.payments.get(names["key"]) if rule in OF_PAYMENTS else None

    def _usage(self, title: str, line: StatementLine) -> Made:
        day = line.accounted_on.isoformat()
        filters = {"q": self.organization_id, "accounted_on": day}
        return Made(title % {"day": day}, "", EVENTS, filters=filters)


def known(organization_id: str, lines: Iterable[StatementLine]) -> Known:
    """Return what lines name, by a few questions however many they are."""
    ids: dict[str, set[str]] = {name: set() for name in ("grant", "invoice", "note", "key")}
    for line in lines:
        found = rule_of(line.cause, line.source)
        for name, value in found[1].items() if found else ():
            if name in ids:
                ids[name].add(value)
    named = Q(idempotency_key__in=ids["key"]) | Q(grant_id__in=ids["grant"])
    payments = list(Payment.objects.filter(named, organization_id=organization_id))
    return Known(
        organization_id=organization_id,
        grants=CreditGrant.objects.in_bulk(ids["grant"]),
        payments={row.idempotency_key: row for row in payments},
        payments_by_grant={row.grant_id: row for row in payments if row.grant_id is not None},
        invoices=Invoice.objects.in_bulk(ids["invoice"]),
        notes=CreditNote.objects.in_bulk(ids["note"]),
    )
