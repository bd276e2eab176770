"""What becomes of a month: it is closed, by several at once, and its invoices are paid, taken back
and disputed."""

import random
from datetime import datetime
from typing import Any

from billing.credit.selectors import owed_nanos
from billing.following.closing import close_days
from billing.following.follow import FOLLOWERS, follow
from billing.invoicing.closes import organizations_behind
from billing.invoicing.models import Invoice
from billing.invoicing.periods import last_period
from billing.invoicing.services.closing import Outcome, close_month
from billing.invoicing.services.disputes import close_dispute, open_dispute
from billing.invoicing.services.notes import issue_credit_note, left_to_credit
from billing.invoicing.services.settling import settle_invoices
from control.errors import Conflict, ServiceError
from tests.simulation.cast import OPERATOR, Cast, Note, Prepared, Transfer
from tests.simulation.deeds.credit import make_payment
from tests.simulation.oracle import require
from tests.simulation.plan import Deed
from tests.simulation.schedule import FAILURE

UNREADY_SHARE = 0.3
"""How often a month is closed without looking after what must be before."""
WAITS = ("months are closed in order", "while it was invoiced", "followed yet")
"""Why an organization may have no invoice yet, other than by a statement that was made to fail."""


def _month(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    now, period = cast.now, last_period(cast.now)
    is_ready = rng.random() >= UNREADY_SHARE
    one = rng.choice((None, None, None, *cast.world.organization_ids))

    def work() -> Outcome:
        if is_ready:
            close_days(now=now)
            for follower in FOLLOWERS:
                follow(follower, now=now)
        return close_month(period=period, actor=OPERATOR, now=now, organization_id=one)

    words = f"beat closes {period} of {one or 'all'}" + (", made ready" if is_ready else "")
    return Prepared(words, work, check_outcome, allowed=(Conflict,))


def check_outcome(outcome: Outcome) -> None:
    """Require that whoever has no invoice yet has none for a good reason."""
    for owner, reason in outcome.failures.items():
        is_known = FAILURE in reason or any(words in reason for words in WAITS)
        require(is_known, "A month is closed", owner, reason)


def _settle(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    now = cast.now

    def work() -> None:
        for owner in organizations_behind():
            settle_invoices(organization_id=owner, now=now)

    return Prepared("beat settles invoices", work)


def _pay_owed(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    """Pay all that is owed, or a nano less or more."""
    owner, now, key = rng.choice(cast.world.organization_ids), cast.now, f"owed {name}"
    more = rng.choice((-1, 0, 0, 1))

    def work() -> None:
        nanos = owed_nanos(owner) + more
        if nanos > 0:
            wish = cast.payments.setdefault(key, Transfer(owner, "payment", nanos))
            make_payment(key, wish, now)

    return Prepared(f"{owner} pays what it owes and {more}", work)


def _take_back(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    """Take back a part of an invoice or all that is left, at times what was taken back before."""
    pick, now = rng.randrange(1000), cast.now
    is_whole, share = rng.random() < 0.4, rng.choice((1, 2, 3))
    again = rng.choice([*cast.notes]) if cast.notes and rng.random() < 0.3 else None

    def work() -> Any:
        key = again or f"note {name}"
        invoice = _some_invoice(pick)
        if key not in cast.notes:
            if invoice is None:
                return None
            left = {pk: cents for pk, cents in left_to_credit(invoice).items() if cents}
            lines = {pk: max(cents // share, 1) for pk, cents in [*left.items()][:share]}
            cast.notes[key] = Note(invoice.organization_id, invoice.pk, None if is_whole else lines)
        return take_back(key, cast.notes[key], now)

    return Prepared(
        f"operator takes back {again or 'of an invoice'}", work, allowed=(ServiceError,)
    )


def take_back(key: str, note: Note, now: datetime) -> Any:
    """Make a credit note, or find that it was made."""
    return issue_credit_note(
        invoice_id=note.invoice_id, lines=note.lines, idempotency_key=key, actor=OPERATOR,
        reason="simulated", now=now,
    )  # fmt: skip


def _dispute(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    pick, now, key = rng.randrange(1000), cast.now, rng.choice("ab")
    is_over = rng.random() < 0.4

    def work() -> None:
        invoice = _some_invoice(pick)
        if invoice is None:
            return
        if is_over:
            close_dispute(invoice_id=invoice.pk, key=key, actor=OPERATOR, now=now)
        else:
            cast.disputes.add((invoice.pk, key))
            open_dispute(
                invoice_id=invoice.pk, key=key, actor=OPERATOR, reason="simulated", now=now
            )

    return Prepared(f"a dispute {key} {'ends' if is_over else 'begins'}", work)


def _some_invoice(pick: int) -> Invoice | None:
    rows = Invoice.objects.order_by("starts_on", "organization_id")
    found = [*rows]
    return found[pick % len(found)] if found else None


DEEDS = {
    "month": _month,
    "settle": _settle,
    "pay_owed": _pay_owed,
    "take_back": _take_back,
    "dispute": _dispute,
}
