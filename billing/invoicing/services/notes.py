"""Credit notes: an invoice, or part of it, taken back line by line. Document and posting are one
transaction; what the customer had paid of it becomes credit."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import Sum

from billing.credit.selectors import owed_nanos
from billing.credit.services.grants import KEY_MAX, hold_balance, open_grant, require_same
from billing.invoicing.amounts import share_of
from billing.invoicing.announcing import announce_credit_note
from billing.invoicing.models import CreditNote, CreditNoteLine, Invoice, InvoiceLine
from billing.invoicing.models.documents import new_credit_note_id
from billing.invoicing.printable import require_printable
from billing.invoicing.selectors import credit_note_by_key, invoice_by_id, standing
from billing.invoicing.services.finalizing import next_number
from billing.invoicing.services.settling import allot, settle
from billing.ledger.causes import (
    CREDIT_NOTE,
    CREDIT_NOTE_INTO_CREDIT,
    AccountKind,
    require_permission,
)
from billing.ledger.post import Leg, post
from control.audit import services as audit
from control.errors import Conflict, InvalidValue
from control.permissions import Actor
from serving.contract.money import CENT_NANOS

REASON_MAX = 200


@dataclass(frozen=True, slots=True)
class _Part:
    """What is taken back of one line: cents of the document, and the nanos they were made of."""

    line: InvoiceLine
    cents: int
    nanos: int


@transaction.atomic
def issue_credit_note(
    *,
    invoice_id: str,
    lines: Mapping[int, int] | None = None,
    idempotency_key: str,
    actor: Actor,
    reason: str,
    now: datetime,
) -> CreditNote:
    """Take back cents of an invoice's lines (by their row ids), or all that is left of it.

    Its tax goes with it. Worked example: of an unpaid invoice of 100 and 19 of tax, 50 taken back
    lower what is owed by 59.50; of a paid one they become 59.50 of credit. Raises NotPermitted,
    ObjectNotFound, InvalidValue, and Conflict for more than is left or a key used before.
    """
    require_permission(CREDIT_NOTE, actor)
    _check(idempotency_key, reason)
    invoice = invoice_by_id(invoice_id)
    hold_balance(invoice.organization_id, now=now)
    before = credit_note_by_key(invoice.organization_id, idempotency_key)
    if before is not None:
        return _the_same(before, invoice, lines)
    parts = _parts(invoice, lines)
    net = sum(part.cents for part in parts)
    tax = _tax(invoice, net)
    note_id, total_nanos = new_credit_note_id(), (net + tax) * CENT_NANOS
    settled = min(max(owed_nanos(invoice.organization_id), 0), total_nanos)
    _post(note_id, invoice, parts, tax, now)
    if settled < total_nanos:
        open_grant(
            rule=CREDIT_NOTE_INTO_CREDIT, organization_id=invoice.organization_id,
            amount_nanos=total_nanos - settled, idempotency_key=f"credit-note:{note_id}",
            actor=actor, reason=reason, now=now,
        )  # fmt: skip
    sequence, number = next_number(
        invoice.legal_entity_id, "next_credit_note", "credit_note_prefix"
    )
    note = CreditNote.objects.create(
        id=note_id, invoice=invoice, organization_id=invoice.organization_id,
        legal_entity_id=invoice.legal_entity_id, number=number, sequence=sequence, issued_at=now,
        idempotency_key=idempotency_key, reason=reason, issued_by=actor.name, net_cents=net,
        tax_cents=tax, total_cents=net + tax, settled_nanos=settled,
    )  # fmt: skip
    CreditNoteLine.objects.bulk_create(
        CreditNoteLine(
            credit_note=note, line=part.line, organization_id=note.organization_id,
            amount_cents=part.cents,
        )
        for part in parts
    )  # fmt: skip
    _settle(note, invoice, now)
    _record(note, actor)
    announce_credit_note(note, now=now)
    return note


def left_to_credit(invoice: Invoice) -> dict[int, int]:
    """Return what may still be taken back of each line, in cents, by its row id."""
    given = dict(
        CreditNoteLine.objects.filter(line__invoice=invoice)
        .values_list("line_id")
        .annotate(cents=Sum("amount_cents"))
    )
    lines = invoice.lines.values_list("pk", "amount_cents")
    return {pk: amount - given.get(pk, 0) for pk, amount in lines}


def _parts(invoice: Invoice, wanted: Mapping[int, int] | None) -> list[_Part]:
    left = left_to_credit(invoice)
    chosen = {pk: cents for pk, cents in left.items() if cents} if wanted is None else wanted
    if not chosen:
        raise Conflict(
            "Nothing is left of the invoice to credit."
            if wanted is None
            else "Choose at least one line."
        )
    by_id = {line.pk: line for line in invoice.lines.all()}
    parts = []
    for pk, cents in sorted(chosen.items()):
        if pk not in by_id:
            raise InvalidValue(f"{invoice.number} has no line {pk}.", param="lines")
        if cents <= 0:
            raise InvalidValue(f"Line {pk} is {cents} cents; wanted more than 0.", param="lines")
        if cents > left[pk]:
            message = f"Line {pk} is {cents} cents; only {left[pk]} cents are left of it."
            raise Conflict(message, param="lines")
        line = by_id[pk]
        before = line.amount_cents - left[pk]
        nanos = _nanos(line, before + cents) - _nanos(line, before)
        parts.append(_Part(line, cents, nanos))
    return parts


def _nanos(line: InvoiceLine, cents: int) -> int:
    return share_of(cents, line.amount_cents, line.amount_nanos)


def _tax(invoice: Invoice, net: int) -> int:
    """Return the tax on what is taken back: what was due of the invoice is taken back first."""
    before = invoice.credit_notes.aggregate(cents=Sum("net_cents"))["cents"] or 0
    due = invoice.net_cents
    taxed = [share_of(min(part, due), due, invoice.tax_cents) for part in (before, before + net)]
    return taxed[1] - taxed[0]


def _post(note_id: str, invoice: Invoice, parts: list[_Part], tax: int, now: datetime) -> None:
    """Take the whole of it off what is owed; what was paid stands there as too much for now."""
    owner = invoice.organization_id
    revenue = sum(part.nanos for part in parts)
    net = sum(part.cents for part in parts) * CENT_NANOS
    legs = [
        Leg(AccountKind.REVENUE, revenue),
        Leg(AccountKind.ROUNDING, net - revenue),
        Leg(AccountKind.TAX_PAYABLE, tax * CENT_NANOS),
        Leg(AccountKind.ACCOUNTS_RECEIVABLE, -net - tax * CENT_NANOS),
    ]
    post(CREDIT_NOTE, organization_id=owner, legs=legs, note=note_id, now=now)


def _settle(note: CreditNote, invoice: Invoice, now: datetime) -> None:
    """The note settles its own invoice first, then the others, oldest first."""
    part = min(note.settled_nanos, standing(invoice).open_nanos)
    by = {"cause": "credit_note", "payment_id": "", "settled_at": now}
    if part > 0:
        allot(invoice, part, by, now=now)
    settle(invoice.organization_id, now=now, cause="credit_note")


def _the_same(before: CreditNote, invoice: Invoice, lines: Mapping[int, int] | None) -> CreditNote:
    if before.invoice_id != invoice.id:
        raise Conflict(
            "The key was already used for a credit note of another invoice.",
            code="idempotency_conflict",
        )
    if lines is not None:
        require_same(
            before.idempotency_key, before.net_cents * CENT_NANOS, sum(lines.values()) * CENT_NANOS
        )
    return before


def _check(idempotency_key: str, reason: str) -> None:
    if not 0 < len(idempotency_key) <= KEY_MAX:
        message = f"idempotency_key has {len(idempotency_key)} characters; wanted 1 to {KEY_MAX}."
        raise InvalidValue(message, param="idempotency_key")
    if not 0 < len(reason.strip()) <= REASON_MAX:
        message = f"reason has {len(reason.strip())} characters; wanted 1 to {REASON_MAX}."
        raise InvalidValue(message, param="reason")
    require_printable({"reason": reason})


def _record(note: CreditNote, actor: Actor) -> None:
    audit.record(
        actor=actor,
        action="invoice.credit",
        target_kind="invoice",
        target_id=note.invoice_id,
        target_name=note.invoice.number,
        organization_id=note.organization_id,
        details={"number": note.number, "total_cents": note.total_cents, "reason": note.reason},
    )
