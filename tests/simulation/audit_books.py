"""The proof of the ledger once all is at rest, from its tables alone."""

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import UTC, date, datetime

import psycopg

from tests.simulation.audit import Auditor
from tests.simulation.audit_payments import is_of_stripe, returned_nanos
from tests.simulation.books import Books, Movement, read_books
from tests.simulation.cast import Cast
from tests.simulation.documents import documents_nanos
from tests.simulation.oracle import received_at, require

CREDIT = ("customer_balance", "promotional_credit")
PAYMENTS = """
SELECT organization_id, idempotency_key, amount_nanos, tax_nanos FROM credit_payment
"""
SETTLED = """
SELECT payment.organization_id, payment.idempotency_key, payment.amount_nanos, tax_nanos,
    settled_nanos, grant_made.amount_nanos
FROM credit_payment AS payment LEFT JOIN credit_grant AS grant_made ON grant_made.id = grant_id
"""
OWED, PROMOTION = "accounts_receivable", "promotion_expense"
FUNDING = ("cash", PROMOTION, "revenue")
Sides = tuple[tuple[str, ...], tuple[str, ...]]
SIDES: dict[str, Sides] = {
    "usage": ((*CREDIT, OWED), ("revenue",)),
    "grant": (FUNDING, CREDIT),
    "grant_reversal": (CREDIT, FUNDING),
    "payment": (("cash",), ("customer_balance", OWED)),
    "tax": (("cash", OWED), ("tax_payable",)),
    "allocation": (CREDIT, (OWED,)),
    "expiry": (CREDIT, ("breakage", PROMOTION)),
    "expiry_reversal": (("breakage", PROMOTION), CREDIT),
    "refund": (("customer_balance", "tax_payable"), ("cash",)),
    "refund_reversal": (("cash",), ("customer_balance", OWED, "tax_payable")),
    "dispute": (("customer_balance", OWED, "tax_payable"), ("cash",)),
    "dispute_reversal": (("cash",), ("customer_balance", OWED, "tax_payable")),
    "write_off": (("bad_debt",), (OWED,)),
    "rounding": ((OWED, "rounding"), (OWED, "rounding")),
    "correction": (("revenue",), ("customer_balance", OWED)),
}
"""What each cause debits, and what it credits."""
NOTE_SIDES: Sides = (("revenue", "rounding", "tax_payable"), (OWED, "rounding"))
"""What a credit note takes back of its invoice."""
NOTE_GRANT_SIDES: Sides = ((OWED,), ("customer_balance",))
"""What of it was paid, and becomes credit."""
NOTE_NAMES = "SELECT 'credit-note:' || id FROM invoicing_credit_note"
REFUNDED_BY_CARD = (("customer_balance", OWED, "tax_payable"), ("cash",))
"""Of a refund through Stripe: with its tax, and owed where Stripe made it by itself."""
FUNDED = "SELECT organization_id, funded_nanos FROM credit_budget WHERE kind = 'balance'"


def audit_books(monitor: psycopg.Connection, cast: Cast, auditor: Auditor) -> None:
    """Raises BrokenError on the first promise that does not hold."""
    books = read_books(monitor)
    _check_wishes(monitor, cast, books)
    _check_sides(monitor, books)
    _check_days(books, auditor)
    _check_draws(books, auditor)
    for organization_id in cast.world.organization_ids:
        _check_organization(monitor, cast, books, auditor, organization_id)


def _check_wishes(monitor: psycopg.Connection, cast: Cast, books: Books) -> None:
    """What the operator asked for under one key was made once, as asked."""
    made = {
        (one.organization_id, one.idempotency_key): (one.kind, one.amount_nanos)
        for one in books.grants.values()
        if one.idempotency_key in cast.wishes
    }
    wanted = {
        (wish.organization_id, key): (wish.kind.value, wish.amount_nanos)
        for key, wish in cast.wishes.items()
    }
    require(made == wanted, "Every grant is made once", made, wanted)
    paid = {(row[0], row[1]): (row[2], row[3]) for row in monitor.execute(PAYMENTS)}
    owed = {
        (one.organization_id, key): (one.amount_nanos, one.tax_nanos)
        for key, one in cast.payments.items()
    }
    require(paid == owed, "Every payment is booked once", paid, owed)


def _check_sides(monitor: psycopg.Connection, books: Books) -> None:
    """Each cause moves money between the accounts that it is about, on the day that it happens."""
    notes = {name for (name,) in monitor.execute(NOTE_NAMES)}
    for one in books.movements:
        ways = sides_of(one, books, notes)
        for kind, nanos in one.by_kind.items():
            is_right = nanos == 0 or kind in ways[nanos < 0]
            require(is_right, "A cause moves what it is about", one, kind)
        is_of_its_day = one.accounted_on == one.posted_at.astimezone(UTC).date()
        require(one.cause == "usage" or is_of_its_day, "What happens is booked that day", one)
    for owner, key, amount, tax, settled, granted in monitor.execute(SETTLED):
        require(settled + (granted or 0) == amount - tax, "A payment is used up", owner, key)


def sides_of(one: Movement, books: Books, notes: Collection[str]) -> Sides:
    """Return what a movement may debit and credit; `notes` are what credit notes of invoices call
    theirs."""
    if one.source in notes:
        return NOTE_SIDES
    if one.cause == "refund" and is_of_stripe(one):
        return REFUNDED_BY_CARD
    grants = (books.grants.get(account) for account in one.by_account)
    is_note = any(grant is not None and grant.idempotency_key in notes for grant in grants)
    return NOTE_GRANT_SIDES if is_note and one.cause == "correction" else SIDES[one.cause]


def _check_days(books: Books, auditor: Auditor) -> None:
    """The ledger books each day what its usage came to."""
    booked: Counter[tuple[str, date]] = Counter()
    used: Counter[tuple[str, date]] = Counter()
    for one in books.movements:
        if one.cause == "usage":
            booked[one.organization_id, one.accounted_on] -= one.by_kind["revenue"]
    for usage, _, _ in auditor.events:
        for sign, day, fact in usage.counted:
            used[fact.organization_id, day] += sign * fact.due.charged_nanos
    wrong = {key for key in booked | used if booked[key] != used[key]}
    require(not wrong, "A day's postings are its usage", wrong)


def _check_draws(books: Books, auditor: Auditor) -> None:
    """Go through the ledger in order: each draw takes what is valid, and takes it in order."""
    drawn: Counter[tuple[str, datetime]] = Counter()
    for one in books.movements:
        for account, nanos in one.by_account.items():
            if account in books.grants:
                books.left[account] -= nanos
                if one.cause in ("expiry", "expiry_reversal"):
                    books.expired[account] += nanos
                require(books.left[account] >= 0, "No credit is spent twice", one)
        if one.cause == "usage":
            _check_order(one, books)
            for account, nanos in one.by_account.items():
                grant = books.grants.get(account)
                if grant is not None and grant.expires_at is not None:
                    drawn[one.organization_id, grant.expires_at] += nanos
        elif one.cause in ("allocation", "expiry"):
            _check_moment(one, books)
    _check_expired(drawn, auditor)


def _check_order(one: Movement, books: Books) -> None:
    """Nothing is owed, nor drawn from a later credit, while an earlier one has something left."""
    mine = sorted(
        (
            grant
            for grant in books.grants.values()
            if grant.organization_id == one.organization_id and grant.granted_at <= one.posted_at
        ),
        key=lambda grant: grant.rank,
    )
    goes_on = one.by_kind["accounts_receivable"] > 0
    for grant in reversed(mine):
        account = grant.account_id
        left = books.left[account] + books.expired[account]
        is_whole = grant.reversed_at is None and grant.is_valid_on(one.accounted_on)
        if goes_on and is_whole and grant.granted_at < one.posted_at:
            require(left == 0, "Usage draws the soonest to expire first", one, grant, left)
        goes_on = goes_on or one.by_account[account] > 0


def _check_moment(one: Movement, books: Books) -> None:
    for account, nanos in one.by_account.items():
        grant = books.grants.get(account)
        if grant is None or nanos == 0:
            continue
        expires_at = grant.expires_at
        if one.cause == "allocation":
            is_valid = expires_at is None or one.posted_at < expires_at
            require(is_valid, "Debts are paid with credit that is valid", one, grant)
        else:
            is_over = expires_at is not None and expires_at <= one.posted_at
            require(is_over, "Credit expires when it does", one, grant)


def _check_expired(drawn: Counter[tuple[str, datetime]], auditor: Auditor) -> None:
    """Credit that ended was drawn by no more than the usage received before."""
    for owner, moment in drawn:
        taken = sum(n for (one, at), n in drawn.items() if one == owner and at <= moment)
        received = sum(
            due.charged_nanos
            for _, event, due in auditor.events
            if event.organization_id == owner and received_at(event.event_id) < moment
        )
        require(taken <= received, "Usage draws what was valid when it was received", owner, moment)


def _check_organization(
    monitor: psycopg.Connection, cast: Cast, books: Books, auditor: Auditor, owner: str
) -> None:
    mine = [one for one in books.movements if one.organization_id == owner]
    charged = auditor.charges_of(owner)
    revenue = -sum(one.by_kind["revenue"] for one in mine if one.cause == "usage")
    require(revenue == charged, "Revenue is what was charged", owner, revenue, charged)
    funded = {row[0]: row[1] for row in monitor.execute(FUNDED)}.get(owner, 0)
    expected = _funded(monitor, cast, books, mine, owner)
    require(funded == expected, "A balance is funded by its causes", owner, funded, expected)
    credit = -sum(sum(one.by_kind[kind] for kind in CREDIT) for one in mine)
    owed = sum(one.by_kind["accounts_receivable"] for one in mine)
    require(funded - charged == credit - owed, "The balance is the ledger's", funded, credit, owed)
    for account, grant in books.grants.items():
        if grant.organization_id != owner:
            continue
        is_over = grant.expires_at is not None and grant.expires_at <= cast.now
        left = books.left[account]
        if is_over or grant.reversed_at:
            require(left == 0, "Nothing is left of credit that ended", grant, left)
        require(owed <= 0 or left == 0, "Nothing is owed while there is credit", grant, left, owed)
        require(grant.expired_nanos == books.expired[account], "Expiry is noted as booked", grant)


def _funded(
    monitor: psycopg.Connection, cast: Cast, books: Books, mine: Iterable[Movement], owner: str
) -> int:
    nanos = sum(one.amount_nanos for one in cast.wishes.values() if one.organization_id == owner)
    for payment in cast.payments.values():
        if payment.organization_id == owner:
            nanos += payment.amount_nanos - payment.tax_nanos
    nanos += _adjusted(cast, mine, books, owner)
    nanos += documents_nanos(monitor, owner) - returned_nanos(monitor, owner)
    for one in mine:
        if one.cause in ("expiry", "expiry_reversal", "grant_reversal"):
            nanos -= sum(one.by_kind[kind] for kind in CREDIT)
    return nanos


def _adjusted(cast: Cast, mine: Iterable[Movement], books: Books, owner: str) -> int:
    """Return what refunds, write-offs and credit notes came to: those made, once, as asked."""
    sources = Counter(one.source for one in mine)
    keys = {one.idempotency_key for one in books.grants.values() if one.organization_id == owner}
    nanos = 0
    for key, wish in cast.adjustments.items():
        if wish.organization_id != owner:
            continue
        count = sources[f"{wish.kind}:{owner}:{key}"]
        require(count <= 1, "What is put right is put right once", wish, count)
        if count or f"{wish.kind}:{key}" in keys:
            nanos += -wish.amount_nanos if wish.kind == "refund" else wish.amount_nanos
    return nanos
