"""Making an organization's month an invoice: once, in one transaction, with its number, its posting
and what must be told."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog
from django.db import transaction

from billing.credit.services.grants import hold_balance
from billing.following.closing import GRACE
from billing.following.sealing import is_followed
from billing.invoicing import drafts
from billing.invoicing.amounts import Totals
from billing.invoicing.announcing import announce_finalized
from billing.invoicing.drafts import Draft
from billing.invoicing.models import BillingProfile, Invoice, InvoiceLine, LegalEntity
from billing.invoicing.models.documents import new_invoice_id
from billing.invoicing.parties import buyer_printed, seller_printed
from billing.invoicing.periods import Period
from billing.invoicing.printable import require_printable_entity, require_printable_profile
from billing.invoicing.selectors import (
    billing_profile,
    invoice_of,
    legal_entity_of,
    unallotted,
)
from billing.invoicing.services.settling import settle
from billing.invoicing.tax import Tax
from billing.ledger.causes import INVOICE_ROUNDING, INVOICE_TAX, AccountKind
from billing.ledger.post import Leg, post
from billing.metering.models import Day
from control.audit import services as audit
from control.errors import Conflict, InvalidValue
from control.permissions import Actor

NUMBER_DIGITS = 6
QUOTES_MAX = 3
"""How often the tax is asked for again because the amount changed meanwhile."""

logger = structlog.get_logger(__name__)


class QuoteOutdatedError(Exception):
    """What was taxed is not what is invoiced: ask again."""


@dataclass(frozen=True, slots=True)
class Quote:
    """An invoice that could be written now: whose and from whom, its lines, and the tax on them."""

    draft: Draft
    profile: BillingProfile
    entity: LegalEntity
    tax: Tax

    @property
    def sums(self) -> Totals:
        """What it comes to."""
        return self.draft.totals(self.tax.cents)


def require_closable(period: Period, *, now: datetime) -> None:
    """Raise Conflict, with the reason, where a month's usage is not all in the books yet."""
    if period.ends_at > now:
        raise Conflict(f"{period} is not over: it ends on {period.ends_on} at 00:00 UTC.")
    closed = Day.objects.filter(day__gte=period.last_day, closed_at__isnull=False)
    last = closed.order_by("day").first()  # days before the first usage have no row
    if last is None:
        hours = int(GRACE.total_seconds() // 3600)
        raise Conflict(
            f"{period} has days that are not closed. A day is closed {hours} h after its end."
        )
    if not is_followed(last):
        raise Conflict(f"{period} is closed, but not all of its usage has been processed yet.")


def invoice_organization(
    *, organization_id: str, period: Period, actor: Actor, now: datetime
) -> Invoice | None:
    """Return the invoice of an organization's month, made now or before; None without usage.

    The tax is asked for outside of the transaction that writes. Raises Conflict where the month is
    not closable, DisagreementError where usage and ledger differ, and whatever a tax calculator
    raises.
    """
    require_closable(period, now=now)
    for _ in range(QUOTES_MAX):
        before = invoice_of(organization_id, period)
        if before is not None:
            return before
        found = quote(organization_id, period, now=now)
        if not found.draft.lines:
            return None
        try:
            return finalize(quote=found, actor=actor, now=now)
        except QuoteOutdatedError:
            continue
    raise Conflict(f"The amount of {period} changed {QUOTES_MAX} times while it was invoiced.")


def quote(organization_id: str, period: Period, *, now: datetime, keep: bool = True) -> Quote:
    """Return what an organization's closed month comes to.

    What is not posted yet is posted for it; without `keep` that is undone again. Characters that
    no font has are logged, and replaced in the PDF.
    """
    with transaction.atomic():
        hold_balance(organization_id, now=now)
        draft = drafts.draft(organization_id, period)
        if not keep:
            transaction.set_rollback(True)
    profile = billing_profile(organization_id)
    entity = legal_entity_of(profile)
    try:
        require_printable_profile(profile)
        require_printable_entity(vars(entity))
    except InvalidValue as error:  # the name of an organization is checked nowhere else
        logger.warning("invoice_not_printable", organization_id=organization_id, reason=str(error))
    return Quote(draft, profile, entity, drafts.tax_of(profile, entity, period, draft.net_cents))


@transaction.atomic
def finalize(*, quote: Quote, actor: Actor, now: datetime) -> Invoice:
    """Write an invoice with its lines, posting and number, and settle it by what was paid before.

    Returns the one that there is, where somebody else was faster. Raises QuoteOutdatedError where
    the amount taxed is no longer the amount due.
    """
    owner, period = quote.draft.organization_id, quote.draft.period
    hold_balance(owner, now=now)
    before = invoice_of(owner, period)
    if before is not None:
        return before
    draft = drafts.draft(owner, period)
    if draft.net_cents != quote.draft.net_cents:
        raise QuoteOutdatedError
    quote = replace(quote, draft=draft)
    settle(owner, now=now)
    invoice_id = new_invoice_id()
    _post(invoice_id, owner, quote.sums, now)
    invoice = _write(invoice_id, quote, now)
    _record(invoice, actor)
    announce_finalized(invoice, now=now)
    settle(owner, now=now)
    return invoice


def next_number(entity_id: str, column: str, prefix: str) -> tuple[int, str]:
    """Take the next number of a legal entity; no other document has it, and none is left out.

    Its row stays locked until the transaction ends.
    """
    entity = LegalEntity.objects.select_for_update().get(pk=entity_id)
    sequence = getattr(entity, column)
    setattr(entity, column, sequence + 1)
    entity.save(update_fields=[column])
    return sequence, f"{getattr(entity, prefix)}{sequence:0{NUMBER_DIGITS}}"


def _post(invoice_id: str, owner: str, sums: Totals, now: datetime) -> None:
    """Make the receivable what the invoice says; the balance owes the same."""
    parts = (
        (INVOICE_ROUNDING, AccountKind.ROUNDING, sums.rounding_nanos),
        (INVOICE_TAX, AccountKind.TAX_PAYABLE, sums.tax_nanos),
    )
    for rule, kind, nanos in parts:
        if nanos:
            legs = [Leg(AccountKind.ACCOUNTS_RECEIVABLE, nanos), Leg(kind, -nanos)]
            post(rule, organization_id=owner, legs=legs, invoice=invoice_id, now=now)


def _write(invoice_id: str, quote: Quote, now: datetime) -> Invoice:
    draft, profile, sums = quote.draft, quote.profile, quote.sums
    owner, period = draft.organization_id, draft.period
    sequence, number = next_number(quote.entity.pk, "next_invoice", "number_prefix")
    invoice = Invoice.objects.create(
        id=invoice_id, organization_id=owner, legal_entity=quote.entity, number=number,
        sequence=sequence, starts_on=period.starts_on, ends_on=period.ends_on, issued_at=now,
        due_on=now.date() + timedelta(days=profile.terms_days), currency="USD",
        collection=profile.collection, paper=profile.paper,
        purchase_order=profile.purchase_order, buyer=buyer_printed(profile),
        seller=seller_printed(quote.entity), tax=quote.tax.as_json(), days=draft.days,
        usage_nanos=sums.usage_nanos, owed_nanos=sums.owed_nanos,
        paid_before_nanos=min(max(unallotted(owner).nanos, 0), sums.total_nanos),
        subtotal_cents=sums.subtotal_cents, credit_applied_cents=sums.credit_applied_cents,
        net_cents=sums.net_cents, tax_cents=sums.tax_cents, total_cents=sums.total_cents,
    )  # fmt: skip
    for line in draft.lines:
        line.invoice, line.organization_id = invoice, owner
    InvoiceLine.objects.bulk_create(draft.lines)
    return invoice


def _record(invoice: Invoice, actor: Actor) -> None:
    audit.record(
        actor=actor,
        action="invoice.finalize",
        target_kind="invoice",
        target_id=invoice.id,
        target_name=invoice.number,
        organization_id=invoice.organization_id,
        details={"number": invoice.number, "total_cents": invoice.total_cents},
    )
