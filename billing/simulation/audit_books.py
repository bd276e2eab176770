"""The proof of ledger, rollups and seals once all is at rest, from their tables alone."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

import psycopg

from billing.simulation.audit import Auditor
from billing.simulation.clock import EPOCH
from billing.simulation.deeds import Cast
from billing.simulation.oracle import received_at, require

CREDIT = ("customer_balance", "promotional_credit")
DAY = timedelta(days=1)

GRANTS = """
SELECT id, organization_id, kind, amount_nanos, account_id, expires_at, expired_nanos, closed_at,
    reversed_at, granted_at, idempotency_key
FROM credit_grant
"""
ENTRIES = """
SELECT transaction_id, transaction.kind, transaction.source, transaction.organization_id,
    transaction.accounted_on, transaction.posted_at, account.kind, account.id, entry.nanos
FROM ledger_entry AS entry JOIN ledger_transaction AS transaction
    ON transaction.id = entry.transaction_id
JOIN ledger_account AS account ON account.id = entry.account_id ORDER BY entry.id
"""
PAYMENTS = """
SELECT organization_id, idempotency_key, amount_nanos, tax_nanos FROM credit_payment
"""
FUNDED = "SELECT organization_id, funded_nanos FROM credit_budget WHERE kind = 'balance'"
ROLLUPS = """
SELECT organization_id, bucket_at, accounted_on, request_count, input_tokens, output_tokens,
    input_nanos + cached_input_nanos + output_nanos, waived_nanos FROM {}
"""
SEALS = """
SELECT organization_id, day_id, event_count, input_nanos + cached_input_nanos + output_nanos,
    waived_nanos FROM following_seal
"""
SEALED_DAYS = "SELECT day FROM metering_day WHERE sealed_at IS NOT NULL"


class Grant(NamedTuple):
    """A credit grant as it is stored."""

    id: str
    organization_id: str
    kind: str
    amount_nanos: int
    account_id: int
    expires_at: datetime | None
    expired_nanos: int
    closed_at: datetime | None
    reversed_at: datetime | None
    granted_at: datetime
    idempotency_key: str

    @property
    def rank(self) -> tuple[object, ...]:
        """Its place among those that usage draws from."""
        never = datetime.max.replace(tzinfo=UTC)
        return (self.expires_at or never, self.kind != "promotional", self.granted_at, self.id)

    def is_valid_on(self, day: date) -> bool:
        """Whether all usage that is accounted on a day was received before it expires."""
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC) + DAY
        return self.expires_at is None or midnight <= self.expires_at


@dataclass(slots=True)
class Movement:
    """A ledger transaction: what it moved, per account; debits are positive."""

    cause: str
    source: str
    organization_id: str
    accounted_on: date
    posted_at: datetime
    by_account: Counter[int] = field(default_factory=Counter)
    by_kind: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Books:
    """The ledger read once, in the order in which it was written."""

    movements: list[Movement]
    grants: dict[int, Grant]
    left: Counter[int] = field(default_factory=Counter)
    """What is left of grants, by account."""
    expired: Counter[int] = field(default_factory=Counter)


def audit_books(monitor: psycopg.Connection, cast: Cast, auditor: Auditor) -> None:
    """Raises BrokenError on the first promise that does not hold."""
    books = _read(monitor)
    _check_wishes(monitor, cast, books)
    _check_draws(books, auditor)
    for organization_id in cast.world.organization_ids:
        _check_organization(monitor, cast, books, auditor, organization_id)
    _check_rollups(monitor, auditor)
    _check_seals(monitor, auditor)


def _read(monitor: psycopg.Connection) -> Books:
    movements: dict[str, Movement] = {}
    for name, cause, source, owner, day, at, kind, account, nanos in monitor.execute(ENTRIES):
        one = movements.setdefault(name, Movement(cause, source, owner, day, at))
        one.by_account[account] += nanos
        one.by_kind[kind] += nanos
    grants = {row[4]: Grant(*row) for row in monitor.execute(GRANTS)}
    for one in movements.values():
        require(sum(one.by_kind.values()) == 0, "A ledger transaction sums to zero", one)
    return Books(list(movements.values()), grants)


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
            for row, event, due in auditor.events
            if row.organization_id == owner and received_at(event.event_id) < moment
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
    expected = _funded(cast, books, mine, owner)
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


def _funded(cast: Cast, books: Books, mine: Iterable[Movement], owner: str) -> int:
    nanos = sum(one.amount_nanos for one in cast.wishes.values() if one.organization_id == owner)
    for payment in cast.payments.values():
        if payment.organization_id == owner:
            nanos += payment.amount_nanos - payment.tax_nanos
    nanos += _adjusted(cast, mine, books, owner)
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


def _check_rollups(monitor: psycopg.Connection, auditor: Auditor) -> None:
    for table, seconds in (("following_minute_rollup", 60), ("following_hour_rollup", 3600)):
        found: dict[tuple[object, ...], list[int]] = defaultdict(lambda: [0] * 5)
        for owner, bucket, _, *sums in monitor.execute(ROLLUPS.format(table)):
            _add(found[owner, bucket], sums)
        expected: dict[tuple[object, ...], list[int]] = defaultdict(lambda: [0] * 5)
        for row, event, due in auditor.events:
            at = received_at(event.event_id)
            bucket = at - timedelta(seconds=(at - EPOCH).total_seconds() % seconds)
            waived = due.rated_nanos - due.charged_nanos
            parts = [1, row.input_tokens, row.output_tokens, due.charged_nanos, waived]
            _add(expected[row.organization_id, bucket], parts)
        wrong = {key for key in found | expected if found[key] != expected[key]}
        require(not wrong, "Rollups are the sums of events", table, wrong)


def _add(sums: list[int], parts: Iterable[int]) -> None:
    for place, part in enumerate(parts):
        sums[place] += part


def _check_seals(monitor: psycopg.Connection, auditor: Auditor) -> None:
    """What was charged on a sealed day is what its seals say."""
    sealed = {row[0] for row in monitor.execute(SEALED_DAYS)}
    found = {(row[0], row[1]): row[3] for row in monitor.execute(SEALS) if row[3]}
    expected: Counter[tuple[str, date]] = Counter()
    for row, _, due in auditor.events:
        if row.accounted_on in sealed:
            expected[row.organization_id, row.accounted_on] += due.charged_nanos
    expected = Counter({key: nanos for key, nanos in expected.items() if nanos})
    require(found == expected, "A seal says what its day came to", found, expected)
