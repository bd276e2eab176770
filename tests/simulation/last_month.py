"""The month's end, once all else is at rest: it is closed for good, parts of a taxed invoice are
taken back and its first one whole, and what must be refused is."""

import random
from datetime import timedelta
from operator import itemgetter
from typing import Any

from billing.following.closing import GRACE
from billing.invoicing.closes import organizations_behind
from billing.invoicing.models import Dispute, Invoice
from billing.invoicing.periods import last_period, period_of
from billing.invoicing.services.closing import close_month
from billing.invoicing.services.disputes import close_dispute
from billing.invoicing.services.notes import left_to_credit
from billing.invoicing.services.settling import settle_invoices
from control.errors import Conflict
from tests.simulation.cast import OPERATOR, Cast, Note
from tests.simulation.deeds.invoices import take_back
from tests.simulation.documents import half_up
from tests.simulation.moments import month_end
from tests.simulation.oracle import require
from tests.simulation.world import FIRST_DAY

TURNING_SHARE, AGAIN_SHARE = 0.8, 0.4
"""How often the month turns at last; less often where it has only begun: each of its days is closed
and sealed, with nothing in most of them."""
FAR = timedelta(days=40)


def turn_at_last(cast: Cast, rng: random.Random) -> bool:
    """Let all months of the seed be over, mostly, and return whether they are; the last day of the
    last is not closed yet, though it is an hour later."""
    is_near = month_end(cast) > cast.now
    turns = rng.random() < (TURNING_SHARE if is_near else AGAIN_SHARE)
    if turns:
        cast.world.clock.now = month_end(cast, within=FAR) - GRACE
    return turns


def refuse_last_day_open(cast: Cast) -> None:
    """Close no month of which all days but the last are closed and followed."""
    terms: Any = {"period": last_period(cast.now), "actor": OPERATOR, "now": cast.now}
    _refuse("a month whose last day is open is closed", lambda: close_month(**terms))
    cast.world.clock.now += GRACE


def close_last_months(cast: Cast) -> None:
    """Close the months that are over, each twice; the running one is closed by nobody."""
    terms: Any = {"actor": OPERATOR, "now": cast.now}
    running = period_of(cast.now.date())
    _refuse("a month that is not over is closed", lambda: close_month(period=running, **terms))
    for period in (last_period(cast.now).before, last_period(cast.now)):
        if period.ends_at < FIRST_DAY:
            continue
        if cast.now < period.ends_at + GRACE:
            _refuse(
                "a month whose last day is open is closed",
                lambda period=period: close_month(period=period, **terms),
            )
            continue
        first, second = (close_month(period=period, **terms) for _ in range(2))
        require(not first.failures, "In the end a month is closed", first.failures)
        require(first.is_finished and second.is_finished, "A close is finished", period)
        require(not second.invoices, "A month that was closed stays so", second.invoices)


def take_parts_back(cast: Cast) -> None:
    """Take two parts of a taxed invoice back whose taxes, rounded by themselves, would be too much
    or too little for both."""
    for invoice in Invoice.objects.filter(tax_cents__gt=0).order_by("issued_at", "pk"):
        line_id, left = max(left_to_credit(invoice).items(), key=itemgetter(1))
        net, tax = invoice.net_cents, invoice.tax_cents
        parts = range(1, min(left, net) // 2 + 1)
        odd = (one for one in parts if 2 * half_up(tax * one, net) != half_up(2 * tax * one, net))
        part = next(odd, None)
        if part is not None and not invoice.credit_notes.exists():
            for key in ("part", "other part"):
                wish = Note(invoice.organization_id, invoice.pk, {line_id: part})
                cast.notes[key] = wish
                take_back(key, wish, cast.now)
            return


def take_first_back(cast: Cast) -> None:
    """Take the first invoice back whole, say so again, and then once more by another name."""
    invoice = Invoice.objects.order_by("legal_entity_id", "sequence").first()
    if invoice is None or not any(left_to_credit(invoice).values()):
        return
    wish = cast.notes["last"] = Note(invoice.organization_id, invoice.pk, None)
    notes = [take_back("last", wish, cast.now).pk for _ in range(2)]
    require(notes[0] == notes[1], "A repeat is answered with what was made", notes)
    left = sum(left_to_credit(invoice).values())
    require(left == 0, "An invoice can be taken back whole", invoice, left)
    line = invoice.lines.order_by("-amount_cents")[0]
    for key, lines in (("more", None), ("most", {line.pk: 1}), ("last", {line.pk: -1})):
        again = Note(invoice.organization_id, invoice.pk, lines)
        _refuse("more is taken back", lambda key=key, again=again: take_back(key, again, cast.now))


def settle_at_last(cast: Cast) -> None:
    """Let invoices follow what nobody told them of, and end every second dispute."""
    for owner in organizations_behind():
        settle_invoices(organization_id=owner, now=cast.now)
    behind = organizations_behind()
    require(not behind, "Invoices stand as the ledger does", behind)
    for dispute in Dispute.objects.order_by("pk")[::2]:
        about: Any = {"invoice_id": dispute.invoice_id, "key": dispute.key}
        close_dispute(**about, actor=OPERATOR, now=cast.now)
        dispute.refresh_from_db()
        require(dispute.closed_at is not None, "A dispute ends", dispute)


def _refuse(words: str, call: Any) -> None:
    try:
        call()
    except Conflict:
        return
    require(False, "What must be refused is", words)
