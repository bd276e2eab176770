"""Questions about invoices. The organization comes first."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Literal

from django.db import connection
from django.db.models import Exists, F, Model, OuterRef, Q, QuerySet, Subquery, Sum, Value
from django.db.models.functions import Coalesce
from django.utils.translation import gettext_lazy as _

from billing.invoicing.models import (
    BillingProfile,
    CreditNote,
    Dispute,
    Invoice,
    InvoicePayment,
    LegalEntity,
)
from billing.invoicing.periods import Period
from control.errors import Conflict, ObjectNotFound
from control.organizations.models import Organization
from serving.contract.money import CENT_NANOS, cents

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

NO_NOTE = "There is no such credit note."
BY_WRITE_OFF = "write_off"
"""The cause of what settled an invoice and is no payment."""
WRITTEN_OFF = Q(cause=BY_WRITE_OFF)
State = Literal["open", "overdue", "disputed", "paid", "written_off", "void"]
STATE_LABELS: dict[State, "StrOrPromise"] = {
    "open": _("Open"),
    "overdue": _("Overdue"),
    "disputed": _("Disputed"),
    "paid": _("Paid"),
    "written_off": _("Written off"),
    "void": _("Void"),
}

# What lowers a receivable, and is neither usage nor an invoice's own rounding and tax.
SETTLED = """
/* What settled an organization's receivable, all in all: payments, credit, notes, write-offs; and
   what of it was written off. */
SELECT coalesce(-sum(entry.nanos), 0)::bigint,
    coalesce(-sum(entry.nanos) FILTER (WHERE posted.kind = 'write_off'), 0)::bigint
FROM ledger_account AS account JOIN ledger_entry AS entry ON entry.account_id = account.id
JOIN ledger_transaction AS posted ON posted.id = entry.transaction_id
WHERE account.organization_id = %s AND account.kind = 'accounts_receivable'
    AND posted.kind NOT IN ('usage', 'rounding', 'tax')
"""


@dataclass(frozen=True, slots=True)
class Unallotted:
    """What lowered a receivable and stands on no invoice yet, and what of it was written off; below
    zero what invoices have too much of."""

    nanos: int
    written_off_nanos: int


@dataclass(frozen=True, slots=True)
class Standing:
    """How an invoice stands. `open_nanos` is left to pay; under half a cent nothing is left.
    `settled_last_by` is the cause of what settled a part of it last: where that was a write-off,
    what was left was given up, and where it was a payment, all that was still asked for was
    paid."""

    invoice: Invoice
    settled_nanos: int
    settled_last_by: str
    credited_cents: int
    is_disputed: bool

    @property
    def open_nanos(self) -> int:
        """What is left to pay, exactly."""
        return self.invoice.total_nanos - self.settled_nanos

    @property
    def open_cents(self) -> int:
        """What is left to pay."""
        return max(cents(self.open_nanos), 0)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to pay."""
        return self.open_cents == 0

    def state(self, today: date) -> State:
        """Return how it stands on a day."""
        if self.invoice.subtotal_cents and self.credited_cents >= self.invoice.subtotal_cents:
            return "void"
        if self.is_settled:
            return "written_off" if self.settled_last_by == BY_WRITE_OFF else "paid"
        if self.is_disputed:
            return "disputed"
        return "overdue" if self.invoice.due_on < today else "open"


def billing_profile(organization: Organization | str) -> BillingProfile:
    """Return an organization's billing profile; one that is not stored where there is none.

    Raises ObjectNotFound for an unknown organization.
    """
    organization_id = organization if isinstance(organization, str) else organization.pk
    rows = BillingProfile.objects.select_related("organization", "legal_entity")
    found = rows.filter(organization_id=organization_id).first()
    if found is not None:
        return found
    if isinstance(organization, Organization):
        return BillingProfile(organization=organization)
    owner = Organization.objects.filter(id=organization_id).first()
    if owner is None:
        raise ObjectNotFound("There is no such organization.")
    return BillingProfile(organization=owner)


def legal_entity_of(profile: BillingProfile) -> LegalEntity:
    """Return who bills a customer. Raises Conflict where the operator has set up nobody."""
    if profile.legal_entity is not None:
        return profile.legal_entity
    found = LegalEntity.objects.filter(is_default=True).first()
    if found is None:
        raise Conflict("No legal entity is the default: set one up in the admin.")
    return found


def default_legal_entity() -> LegalEntity | None:
    """Return who bills those who name nobody."""
    return LegalEntity.objects.filter(is_default=True).first()


def invoices(organization: Organization | str) -> QuerySet[Invoice]:
    """Return an organization's invoices, the newest first."""
    organization_id = organization if isinstance(organization, str) else organization.pk
    return Invoice.objects.filter(organization_id=organization_id).order_by("-starts_on")


def invoice(organization: Organization | str, invoice_id: str) -> Invoice:
    """Return one of an organization's invoices. Raises ObjectNotFound."""
    found = invoices(organization).filter(id=invoice_id).first()
    if found is None:
        raise ObjectNotFound("There is no such invoice.")
    return found


def invoice_by_id(invoice_id: str) -> Invoice:
    """Return an invoice, whoever's it is: for who acts for the operator. Raises ObjectNotFound."""
    found = Invoice.objects.filter(id=invoice_id).first()
    if found is None:
        raise ObjectNotFound("There is no such invoice.")
    return found


def invoice_of(organization_id: str, period: Period) -> Invoice | None:
    """Return the invoice of an organization's month."""
    return Invoice.objects.filter(
        organization_id=organization_id, starts_on=period.starts_on
    ).first()


def open_invoices(organization: Organization | str) -> list[Invoice]:
    """Return the invoices that something is left to pay of, oldest first."""
    found = standings(invoices(organization).order_by("starts_on"))
    return [one.invoice for one in found if not one.is_settled]


def standing(invoice: Invoice) -> Standing:
    """Return how an invoice stands."""
    (found,) = standings([invoice])
    return found


def standing_by_id(invoice_id: str) -> Standing:
    """Return how an invoice stands, whoever's it is, by one question. Raises ObjectNotFound."""
    found = standings(Invoice.objects.filter(id=invoice_id))
    if not found:
        raise ObjectNotFound("There is no such invoice.")
    return found[0]


def standings(rows: Iterable[Invoice]) -> list[Standing]:
    """Return how invoices stand, in their order; those of a query by one question with it."""
    if isinstance(rows, QuerySet):
        return [_standing(row) for row in _with_sums(rows)]
    rows = list(rows)
    ids = [row.pk for row in rows]
    found = {row.pk: row for row in _with_sums(Invoice.objects.filter(pk__in=ids))}
    return [_standing(found[row.pk]) for row in rows]


def unsettled_first(organization_id: str) -> list[Invoice]:
    """Return an organization's invoices with a nano left to settle, oldest first."""
    rows = _with_sums(Invoice.objects.filter(organization_id=organization_id))
    return list(rows.filter(settled__lt=F("total_cents") * CENT_NANOS).order_by("starts_on"))


def settled_last(organization_id: str) -> list[Invoice]:
    """Return an organization's invoices of which something was settled, newest first."""
    rows = Invoice.objects.filter(organization_id=organization_id)
    with_sums = rows.annotate(settled=Sum("payments__nanos"))
    return list(with_sums.filter(settled__gt=0).order_by("-starts_on"))


def unallotted(organization_id: str) -> Unallotted:
    """Return what lowered an organization's receivable beyond what its invoices have of it."""
    with connection.cursor() as cursor:
        cursor.execute(SETTLED, [organization_id])
        settled, written_off = cursor.fetchone()
    rows = InvoicePayment.objects.filter(organization_id=organization_id)
    allotted = rows.aggregate(
        every=Coalesce(Sum("nanos"), 0),
        written_off=Coalesce(Sum("nanos", filter=WRITTEN_OFF), 0),
    )
    return Unallotted(settled - allotted["every"], written_off - allotted["written_off"])


def credit_notes(invoice: Invoice) -> QuerySet[CreditNote]:
    """Return what takes an invoice back, oldest first."""
    return invoice.credit_notes.order_by("issued_at", "sequence")


def credit_note(organization: Organization, note_id: str) -> CreditNote:
    """Return one of an organization's credit notes. Raises ObjectNotFound."""
    found = credit_note_by_id(note_id)
    if found.organization_id != organization.pk:
        raise ObjectNotFound(NO_NOTE)
    return found


def credit_note_by_id(note_id: str) -> CreditNote:
    """Return a credit note, whoever's it is: for who acts for the operator. Raises
    ObjectNotFound."""
    found = CreditNote.objects.select_related("invoice").filter(id=note_id).first()
    if found is None:
        raise ObjectNotFound(NO_NOTE)
    return found


def credit_note_by_key(organization_id: str, idempotency_key: str) -> CreditNote | None:
    """Return the credit note made with this idempotency key."""
    made = CreditNote.objects.filter(
        organization_id=organization_id, idempotency_key=idempotency_key
    )
    return made.first()


def overdue(now: datetime, organization_ids: Collection[str] | None = None) -> list[Standing]:
    """Return the invoices past their day that something is left to pay of, oldest first."""
    late = Invoice.objects.filter(due_on__lt=now.date()).order_by("due_on", "organization_id")
    if organization_ids is not None:
        late = late.filter(organization_id__in=organization_ids)
    unpaid = _with_sums(late).filter(settled__lte=F("total_cents") * CENT_NANOS - CENT_NANOS // 2)
    found = [_standing(row) for row in unpaid]
    return [one for one in found if one.state(now.date()) == "overdue"]


def _with_sums(rows: QuerySet[Invoice]) -> QuerySet[Any]:
    """Return invoices with what settled and credited them, and whether they are disputed."""
    disputes = Dispute.objects.filter(invoice=OuterRef("pk"), closed_at__isnull=True)
    settled = InvoicePayment.objects.filter(invoice=OuterRef("pk"), nanos__gt=0)
    last = settled.order_by("-settled_at", "-pk")
    return rows.annotate(
        settled=_sum(InvoicePayment, "nanos"),
        settled_last_by=Coalesce(Subquery(last.values("cause")[:1]), Value("")),
        credited=_sum(CreditNote, "net_cents"),
        is_disputed=Exists(disputes),
    )


def _sum(model: type[Model], column: str) -> Coalesce:
    mine = Q(invoice=OuterRef("pk"))
    rows = model._default_manager.filter(mine).order_by().values("invoice")
    return Coalesce(Subquery(rows.annotate(sum=Sum(column)).values("sum")), 0)


def _standing(row: Any) -> Standing:
    return Standing(row, row.settled, row.settled_last_by, row.credited, row.is_disputed)
