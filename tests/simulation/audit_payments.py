"""The proof of payments once all is at rest: what Stripe's double says moved, against our rows and
the ledger's entries. There is one state that fits, whatever order news came in."""

from collections import Counter, defaultdict
from typing import Any, NamedTuple

import psycopg

from tests.simulation.books import Movement, read_books
from tests.simulation.cast import Cast, Transfer
from tests.simulation.documents import CENT, half_up
from tests.simulation.oracle import require
from tests.simulation.stripe_double.params import decoded

PAYMENT, REFUND, OWNER = "penstock_payment", "penstock_refund", "penstock_organization"
"""What our metadata at Stripe is called."""
ROWS = """
SELECT id, organization_id, purpose, amount_cents, tax_cents, status, method_id, intent_id,
    checkout_id, invoice_id, idempotency_key
FROM payments_payment ORDER BY id
"""
REFUNDS = """
SELECT id, payment_id, amount_cents, tax_cents, status, stripe_id, idempotency_key, requested_by
FROM payments_refund ORDER BY id
"""
DISPUTES = """
SELECT stripe_id, payment_id, status, taken_cents + taken_tax_cents, reinstated_at IS NOT NULL,
    closed_at IS NOT NULL
FROM payments_dispute
"""
RETURNED_STATES = """
SELECT stripe_id, status FROM payments_refund UNION ALL
SELECT stripe_id, status FROM payments_dispute
"""
EVENTS = "SELECT event_id, processed_at IS NOT NULL FROM payments_event"
RETURNED = """
SELECT coalesce((SELECT sum(amount_cents) FROM payments_refund
        WHERE organization_id = %(owner)s AND status <> 'failed'), 0)
    + coalesce((SELECT sum(taken_cents) FROM payments_dispute
        WHERE organization_id = %(owner)s AND reinstated_at IS NULL), 0)
"""
COLLECTED = "SELECT key FROM outbox_message WHERE kind = 'stripe.collect'"
INVOICES = "SELECT id, total_cents FROM invoicing_invoice"
MOVED_BY = ("payment", "tax", "refund_reversal", "dispute", "dispute_reversal")
OVER = ("won", "lost", "warning_closed")
COSTS = {"/v1/payment_intents": PAYMENT, "/v1/checkout/sessions": PAYMENT, "/v1/refunds": REFUND}
"""Questions that move money, and what of ours they name."""
Thing = dict[str, Any]


class Row(NamedTuple):
    """A payment through Stripe as it is stored."""

    id: str
    owner: str
    purpose: str
    amount_cents: int
    tax_cents: int
    status: str
    method_id: str | None
    intent_id: str | None
    checkout_id: str | None
    invoice_id: str
    key: str

    @property
    def total_cents(self) -> int:
        """What the customer pays."""
        return self.amount_cents + self.tax_cents


def audit_payments(monitor: psycopg.Connection, cast: Cast) -> None:
    """Raises BrokenError on the first promise that does not hold. What Stripe took is from here on
    among the payments that the ledger must have, once each."""
    rows = {row[0]: Row(*row) for row in monitor.execute(ROWS)}
    intents = _by_name(cast, "payment_intent", PAYMENT)
    _check_questions(cast)
    _check_wishes(cast, rows)
    _check_prompt(monitor, cast, rows)
    for row in rows.values():
        _check_payment(cast, row, intents.get(row.id, []))
    unknown = intents.keys() - rows.keys()
    require(not unknown, "Stripe is asked for what is written down", unknown)
    _check_refunds(monitor, cast, rows)
    _check_disputes(monitor, cast, rows)
    _check_moved(monitor, cast)
    _check_invoices(monitor, cast, rows)
    _check_events(monitor, cast)
    for row in rows.values():
        if row.status == "succeeded":
            cast.payments[f"stripe:{row.id}"] = Transfer(
                row.owner, "payment", row.total_cents * CENT, row.tax_cents * CENT
            )
    for intent_id, (owner, cents) in cast.payers.unasked.items():
        cast.payments[f"stripe:{intent_id}"] = Transfer(owner, "payment", cents * CENT, 0)


def check_told(monitor: psycopg.Connection, cast: Cast) -> None:
    """What the last webhook of a refund or dispute told is in the books, without the nightly look;
    of payments the beat finds more."""
    last = {each["data"]["object"]["id"]: each["id"] for each in cast.payers.stripe.events}
    mine: dict[str, Any] = dict(monitor.execute(RETURNED_STATES).fetchall())
    for kind in ("refund", "dispute"):
        for said in cast.payers.stripe.all(kind):
            is_told = last[said["id"]] in cast.payers.taken
            shown = mine.get(said["id"], "failed")
            require(not is_told or shown == said["status"], "What was told is known", said, shown)


def is_of_stripe(one: Movement) -> bool:
    """Tell whether a movement was named by what happened at Stripe."""
    return ":stripe:" in one.source


def returned_nanos(monitor: psycopg.Connection, owner: str) -> int:
    """Return what refunds and disputes through Stripe took of an organization's credit."""
    row = monitor.execute(RETURNED, {"owner": owner}).fetchone()
    return int(row[0]) * CENT if row else 0


def _by_name(cast: Cast, kind: str, name: str) -> dict[str, list[Thing]]:
    """Return Stripe's objects of a kind by what of ours they name."""
    found: dict[str, list[Thing]] = defaultdict(list)
    for each in cast.payers.stripe.all(kind):
        if name in each["metadata"]:
            found[each["metadata"][name]].append(each)
    return found


def _check_questions(cast: Cast) -> None:
    """Whatever moves money is asked with one key, ours, and outside of any transaction."""
    line = cast.payers.line
    require(not line.inside, "Stripe is never asked inside of a transaction", line.inside)
    keys: dict[tuple[str, str], set[str]] = defaultdict(set)
    forms: dict[str, set[str]] = defaultdict(set)
    for asked in line.posts:
        forms[asked.key].add(asked.form)
        name = COSTS.get(asked.path)
        named = decoded(asked.form).get("metadata", {}).get(name) if name else None
        if named is not None:
            keys[asked.path, named].add(asked.key)
            require(named in asked.key, "A question names its row in its key", asked)
    several = {about: found for about, found in keys.items() if len(found) > 1}
    require(not several, "A wish has one idempotency key", several)
    changed = {key for key, found in forms.items() if len(found) > 1}
    require(not changed, "A key names one question", changed)


def _check_wishes(cast: Cast, rows: dict[str, Row]) -> None:
    """Each top-up that was wanted is written down once, as wanted, and no other."""
    made = {
        (row.owner, row.key): row.amount_cents for row in rows.values() if row.purpose == "top_up"
    }
    count = sum(row.purpose == "top_up" for row in rows.values())
    require(count == len(made), "A top-up is written down once", made)
    require(made.keys() <= cast.payers.top_ups.keys(), "Nobody tops up who did not want to", made)
    for name, wish in cast.payers.top_ups.items():
        found = made.get(name)
        require(found in (None, wish.amount_cents), "A top-up is as wanted", wish, found)


def _check_prompt(monitor: psycopg.Connection, cast: Cast, rows: dict[str, Row]) -> None:
    """A saved method is charged at once: the outbox was told with the wish. A page is opened while
    the customer waits."""
    told = {name for (name,) in monitor.execute(COLLECTED)}
    for row in rows.values():
        wish = cast.payers.top_ups.get((row.owner, row.key))
        if row.purpose == "top_up" and wish is not None:
            is_right = (row.id in told) == (wish.method_id is not None)
            require(is_right, "Saved methods, and no pages, are asked for by the outbox", row)


def _check_payment(cast: Cast, row: Row, intents: list[Thing]) -> None:
    """One charge at most, of the right amount, and our row says what became of it."""
    require(len(intents) <= 1, "A payment is asked for once", row, intents)
    tax = 0
    if row.purpose != "invoice":
        tax = half_up(row.amount_cents * cast.world.tax_rates[row.owner], 10_000)
    require(row.tax_cents == tax, "A top-up is taxed like its customer's invoices", row, tax)
    intent = intents[0] if intents else None
    # On a page another card may be tried: it ends by itself, or by a debit that came back after it.
    is_page = row.checkout_id is not None and not _is_complete(cast, row.checkout_id)
    wanted: tuple[str, ...] = {"succeeded": ("succeeded",), "canceled": ("canceled",)}.get(
        intent["status"] if intent else "", ("canceled",) if is_page else ("failed",)
    )
    if intent is None and not is_page:
        wanted = ("canceled", "failed")
    require(row.status in wanted, "A payment is what Stripe says", row, intent)
    if intent is not None and intent["status"] == "succeeded":
        said = (intent["amount_received"], intent["id"], _owner(cast, intent))
        mine = (row.total_cents, row.intent_id, row.owner)
        require(said == mine, "What was paid is what was asked", row, said)


def _is_complete(cast: Cast, checkout_id: str) -> bool:
    """Tell whether the customer did at Stripe's page what it asks for."""
    pages = cast.payers.stripe.all("checkout.session")
    return any(each["id"] == checkout_id and each["status"] == "complete" for each in pages)


def _check_refunds(monitor: psycopg.Connection, cast: Cast, rows: dict[str, Row]) -> None:
    """Each refund at Stripe is one row here, and each of ours one refund there at most."""
    at_stripe = {each["id"]: each for each in cast.payers.stripe.all("refund")}
    named = _by_name(cast, "refund", REFUND)
    twice = [found for found in named.values() if len(found) > 1]
    require(not twice, "A refund is made once", twice)
    tax: Counter[str] = Counter()
    found: Counter[str] = Counter()
    wanted = {(wish.payment_id, key) for key, wish in cast.payers.refunds.items()}
    for name, payment, cents, tax_cents, status, stripe_id, key, who in monitor.execute(REFUNDS):
        said = at_stripe.get(stripe_id)
        state = said["status"] if said else "failed"
        require(status == state, "A refund is what Stripe says", name, status, said)
        if said is not None:
            found[stripe_id] += 1
            is_like = (said["amount"], said["payment_intent"]) == (
                cents + tax_cents, rows[payment].intent_id,
            )  # fmt: skip
            require(is_like, "What was paid back is what was asked", name, said)
        if who != "Stripe":
            is_wanted = (payment, key) in wanted and cast.payers.refunds[key].amount_cents == cents
            require(is_wanted, "A refund is as wanted", name, key)
        tax[payment] += tax_cents if status != "failed" else 0
    unheard = {
        name for name, said in at_stripe.items() if said["status"] == "failed"
    } - found.keys()
    wanted_once = Counter(at_stripe.keys() - unheard)
    require(found == wanted_once, "Every refund is in the books once", found, wanted_once)
    for payment, cents in tax.items():
        require(cents <= rows[payment].tax_cents, "No more tax goes back than came", payment, cents)


def _check_disputes(monitor: psycopg.Connection, cast: Cast, rows: dict[str, Row]) -> None:
    mine = {row[0]: row[1:] for row in monitor.execute(DISPUTES)}
    said = {each["id"]: each for each in cast.payers.stripe.all("dispute")}
    require(mine.keys() == said.keys(), "Every dispute is in the books", mine, said)
    for name, (payment, status, taken, is_back, is_closed) in mine.items():
        one = said[name]
        moved = [each["amount"] for each in one["balance_transactions"]]
        wanted = (
            rows[payment].intent_id, one["status"], -min(moved, default=0), len(moved) > 1,
            one["status"] in OVER,
        )  # fmt: skip
        shown = (one["payment_intent"], status, taken, is_back, is_closed)
        require(shown == wanted, "A dispute is what Stripe says", name, shown, wanted)


def _check_moved(monitor: psycopg.Connection, cast: Cast) -> None:
    """What moved at Stripe is what moved in the ledger's cash, to the cent, of each customer."""
    at_stripe: Counter[str] = Counter()
    for each in cast.payers.stripe.all("balance_transaction"):
        source = cast.payers.stripe.things[each["source"]]
        intent = cast.payers.stripe.things[source["payment_intent"]]
        at_stripe[_owner(cast, intent)] += each["amount"] * CENT
    by_hand = Counter[str]()
    for one in cast.payments.values():
        by_hand[one.organization_id] += one.amount_nanos
    booked: Counter[str] = Counter()
    for moved in read_books(monitor).movements:
        if moved.cause in MOVED_BY or (moved.cause == "refund" and is_of_stripe(moved)):
            booked[moved.organization_id] += moved.by_kind["cash"]
    for owner in cast.world.organization_ids:
        mine, theirs = booked[owner] - by_hand[owner], at_stripe[owner]
        require(mine == theirs, "Stripe's money is the ledger's", owner, mine, theirs)


def _check_invoices(monitor: psycopg.Connection, cast: Cast, rows: dict[str, Row]) -> None:
    """No invoice is charged beyond its total, but for what went back."""
    totals: dict[str, int] = dict(monitor.execute(INVOICES).fetchall())
    charged: Counter[str] = Counter()
    for row in rows.values():
        if row.invoice_id and row.status == "succeeded":
            charged[row.invoice_id] += row.total_cents - _returned(cast, row)
    for invoice_id, cents in charged.items():
        require(cents <= totals[invoice_id], "An invoice is charged once", invoice_id, cents)


def _returned(cast: Cast, row: Row) -> int:
    """Return what of a payment ever went back, also where it came again."""
    return sum(
        each["amount"]
        for kind in ("refund", "dispute")
        for each in cast.payers.stripe.all(kind)
        if each["payment_intent"] == row.intent_id
    )


def _check_events(monitor: psycopg.Connection, cast: Cast) -> None:
    """Each webhook that was taken is kept once and was looked at."""
    kept: dict[str, bool] = dict(monitor.execute(EVENTS).fetchall())
    lost = cast.payers.taken - kept.keys()
    require(not lost, "A webhook that was taken is kept", lost)
    waiting = [name for name, is_done in kept.items() if not is_done]
    require(not waiting, "In the end no webhook waits", waiting)


def _owner(cast: Cast, intent: Thing) -> str:
    """Return whose customer paid."""
    owner: str = cast.payers.stripe.things[intent["customer"]]["metadata"][OWNER]
    return owner
