"""The books of all organizations together: the trial balance of a day, and the journal of a span of
days, summed by account and day or entry by entry.

Each transaction is read whole or not at all, so that debits equal credits in all that is returned.
Debits are positive; UTC days are the accounting dates of the ledger.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db import connection

from billing.ledger.causes import CHART_OF_ACCOUNTS, AccountKind

WINDOW_DAYS = 31
"""Days whose movements one query sums."""
FILE_TRANSACTIONS = 1_000
"""Transactions in memory while the journal is written to a file."""
SEARCHED_TRANSACTIONS = 2_000
"""Transactions that one page searches for the entries of an account, at most."""
CHART = tuple(CHART_OF_ACCOUNTS)

# All entries, less those of later days: few, since a balance is mostly asked of a day not long ago.
TRIAL_BALANCE = """
SELECT account.kind,
    coalesce(sum(moved.nanos * moved.times) FILTER (WHERE moved.nanos > 0), 0),
    coalesce(-sum(moved.nanos * moved.times) FILTER (WHERE moved.nanos < 0), 0)
FROM (
    SELECT account_id, nanos, 1 AS times FROM ledger_entry
    UNION ALL
    SELECT entry.account_id, entry.nanos, -1 FROM ledger_transaction AS later
    JOIN ledger_entry AS entry ON entry.transaction_id = later.id
    WHERE later.accounted_on > %(day)s
) AS moved JOIN ledger_account AS account ON account.id = moved.account_id
GROUP BY account.kind
"""
FIRST_AND_LAST_DAY = "SELECT min(accounted_on), max(accounted_on) FROM ledger_transaction"
MOVEMENTS = """
SELECT moved.accounted_on, account.kind, count(*),
    coalesce(sum(entry.nanos) FILTER (WHERE entry.nanos > 0), 0),
    coalesce(-sum(entry.nanos) FILTER (WHERE entry.nanos < 0), 0)
FROM ledger_transaction AS moved
JOIN ledger_entry AS entry ON entry.transaction_id = moved.id
JOIN ledger_account AS account ON account.id = entry.account_id
WHERE moved.accounted_on BETWEEN %(first)s AND %(last)s AND %(account)s IN ('', account.kind)
GROUP BY moved.accounted_on, account.kind
"""
# Transactions after a position, each with its entries in the account asked for; with NULLs where it
# has none, so that the position after it is known.
ENTRIES = """
SELECT moved.id, moved.accounted_on, moved.posted_at, moved.kind, moved.source,
    moved.organization_id, coalesce(organization.name, ''),
    entry.id, entry.kind, entry.owner_id, entry.nanos
FROM (
    SELECT id, accounted_on, posted_at, kind, source, organization_id FROM ledger_transaction
    WHERE accounted_on BETWEEN %(first)s AND %(last)s
        AND (accounted_on, posted_at, id) > (%(day)s, %(moment)s, %(transaction)s)
    ORDER BY accounted_on, posted_at, id LIMIT %(most)s
) AS moved
LEFT JOIN LATERAL (
    SELECT part.id, account.kind, account.owner_id, part.nanos FROM ledger_entry AS part
    JOIN ledger_account AS account ON account.id = part.account_id
    WHERE part.transaction_id = moved.id AND %(account)s IN ('', account.kind)
) AS entry ON true
LEFT JOIN organizations_organization AS organization ON organization.id = moved.organization_id
ORDER BY moved.accounted_on, moved.posted_at, moved.id, entry.id
"""


@dataclass(frozen=True, slots=True)
class AccountTotals:
    """What was debited and credited to one account of all organizations, in nanos."""

    kind: AccountKind
    debits_nanos: int
    credits_nanos: int

    @property
    def balance_nanos(self) -> int:
        """Debits less credits."""
        return self.debits_nanos - self.credits_nanos


@dataclass(frozen=True, slots=True)
class DayMovements:
    """The entries of one account on one accounting day."""

    accounted_on: date
    entry_count: int
    totals: AccountTotals


@dataclass(frozen=True, slots=True)
class JournalPosition:
    """A place in the journal: behind a transaction."""

    accounted_on: date
    posted_at: datetime
    transaction_id: str


BEGINNING = JournalPosition(date.min, datetime.min.replace(tzinfo=UTC), "")


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One side of a transaction: nanos debited (positive) or credited (negative)."""

    transaction_id: str
    accounted_on: date
    posted_at: datetime
    cause: str
    source: str
    organization_id: str
    organization_name: str
    entry_id: int
    account: str
    grant_id: str
    nanos: int


@dataclass(frozen=True, slots=True)
class JournalSection:
    """Entries of the journal, and the position behind them; None at the end of the span."""

    entries: Sequence[JournalEntry]
    next: JournalPosition | None


def trial_balance(day: date) -> list[AccountTotals]:
    """Return the totals of every account up to the end of a day, in the order of the chart."""
    with connection.cursor() as cursor:
        cursor.execute(TRIAL_BALANCE, {"day": day})
        found = {kind: (int(debits), int(credits)) for kind, debits, credits in cursor.fetchall()}
    return [AccountTotals(kind, *found.get(kind, (0, 0))) for kind in CHART]


def days_with_entries(first: date, last: date) -> tuple[date, date] | None:
    """Return a span cut to the days that the ledger has; None where nothing is left of it."""
    with connection.cursor() as cursor:
        cursor.execute(FIRST_AND_LAST_DAY)
        earliest, latest = cursor.fetchone()
    if earliest is None:
        return None
    first, last = max(first, earliest), min(last, latest)
    return (first, last) if first <= last else None


def windows(first: date, last: date) -> list[tuple[date, date]]:
    """Return a span in parts of `WINDOW_DAYS`; none of a span cut to nothing."""
    span = days_with_entries(first, last)
    if span is None:
        return []
    first, last = span
    count = (last - first).days // WINDOW_DAYS + 1
    begins = [first + timedelta(days=WINDOW_DAYS * number) for number in range(count)]
    return [(begin, min(begin + timedelta(days=WINDOW_DAYS - 1), last)) for begin in begins]


def movements(first: date, last: date, account: str = "") -> list[DayMovements]:
    """Return what moved on each day in each account, or in one, in the order of the chart."""
    with connection.cursor() as cursor:
        cursor.execute(MOVEMENTS, {"first": first, "last": last, "account": account})
        rows = cursor.fetchall()
    found = [
        DayMovements(day, count, AccountTotals(AccountKind(kind), int(debits), int(credits)))
        for day, kind, count, debits, credits in rows
    ]
    return sorted(found, key=lambda row: (row.accounted_on, CHART.index(row.totals.kind)))


def journal_section(
    first: date, last: date, account: str = "", *, begin: JournalPosition | None = None,
    transactions_max: int, entries_max: int | None = None,
) -> JournalSection:  # fmt: skip
    """Return entries of a span behind a position, of one account if it is given, the oldest first.

    It reads so many transactions at most, and ends early, behind a whole transaction, once it has
    `entries_max` entries or more.
    """
    rows = _entries(first, last, account, begin or BEGINNING, transactions_max + 1)
    entries: list[JournalEntry] = []
    position, transactions = None, 0
    for row in rows:
        here = JournalPosition(row[1], row[2], row[0])
        if here != position:
            is_full = entries_max is not None and len(entries) >= entries_max
            if is_full or transactions == transactions_max:
                return JournalSection(entries, position)
            position, transactions = here, transactions + 1
        if row[-1] is not None:
            entries.append(JournalEntry(*row))
    return JournalSection(entries, None)


def every_entry(first: date, last: date, account: str = "") -> Iterator[Sequence[JournalEntry]]:
    """Yield all entries of a span, those of some transactions at a time."""
    begin = None
    while True:
        section = journal_section(
            first, last, account, begin=begin, transactions_max=FILE_TRANSACTIONS
        )
        yield section.entries
        if section.next is None:
            return
        begin = section.next


def _entries(
    first: date, last: date, account: str, begin: JournalPosition, most: int
) -> list[tuple]:
    values: dict[str, Any] = {
        "first": first, "last": last, "account": account, "most": most,
        "day": begin.accounted_on, "moment": begin.posted_at, "transaction": begin.transaction_id,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(ENTRIES, values)
        return cursor.fetchall()
