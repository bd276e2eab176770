"""One organization's account as a bank statement: entries in the order they were written, each with
the balance after it.

Entries of one organization are written under a lock of its balance, so their ids rise as they
commit: what stands before an entry never changes. A page begins at an entry and knows the balance
there, so that the thousandth page costs what the first one does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from django.db import connection

WALKED_MAX = 2_000
"""Entries that one page of a filtered statement looks at, at most."""
FILE_PAGE = 2_000
SKEW_TRANSACTIONS = 200
"""How far, in transactions, the order of moments may differ from that of entries: a service takes
its moment before it waits for the organization's lock."""
LAST = 2**63 - 1
"""An entry that is never written."""
EARLIEST, LATEST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)

# The entries of some accounts before one, the newest first; and what the accounts hold after the
# first of them, where that is not known.
NEWEST = """
SELECT entry.id, entry.nanos, moved.id, moved.source, moved.kind, moved.posted_at,
    moved.accounted_on, account.owner_id,
    CASE WHEN row_number() OVER (ORDER BY entry.id DESC) = 1 AND NOT %(is_known)s THEN (
        SELECT coalesce(sum(balance_nanos), 0) FROM ledger_account WHERE id = ANY(%(accounts)s)
    )::bigint - (
        SELECT coalesce(sum(nanos), 0)
        FROM unnest(%(accounts)s::bigint[]) AS wanted (id) CROSS JOIN LATERAL (
            SELECT nanos FROM ledger_entry
            WHERE account_id = wanted.id AND id > entry.id ORDER BY account_id, id
        ) AS since
    )::bigint END
FROM (
    SELECT walked.* FROM unnest(%(accounts)s::bigint[]) AS wanted (id) CROSS JOIN LATERAL (
        SELECT id, nanos, transaction_id, account_id FROM ledger_entry
        WHERE account_id = wanted.id AND id < %(before)s AND id >= %(floor)s
        ORDER BY account_id DESC, id DESC LIMIT %(most)s
    ) AS walked ORDER BY walked.id DESC LIMIT %(most)s
) AS entry
JOIN ledger_transaction AS moved ON moved.id = entry.transaction_id
JOIN ledger_account AS account ON account.id = entry.account_id
ORDER BY entry.id DESC
"""
# The same from one on, the oldest first.
OLDEST = """
SELECT entry.id, entry.nanos, moved.id, moved.source, moved.kind, moved.posted_at,
    moved.accounted_on, account.owner_id
FROM (
    SELECT walked.* FROM unnest(%(accounts)s::bigint[]) AS wanted (id) CROSS JOIN LATERAL (
        SELECT id, nanos, transaction_id, account_id FROM ledger_entry
        WHERE account_id = wanted.id AND id >= %(floor)s AND id < %(before)s
        ORDER BY account_id, id LIMIT %(most)s
    ) AS walked ORDER BY walked.id LIMIT %(most)s
) AS entry
JOIN ledger_transaction AS moved ON moved.id = entry.transaction_id
JOIN ledger_account AS account ON account.id = entry.account_id
ORDER BY entry.id
"""
# The balance of some accounts before each of some entries: what they hold, less what was written
# since.
BALANCES = """
SELECT place.id, (SELECT coalesce(sum(balance_nanos), 0) FROM ledger_account
        WHERE id = ANY(%(accounts)s))::bigint
    - (SELECT coalesce(sum(nanos), 0)
        FROM unnest(%(accounts)s::bigint[]) AS wanted (id) CROSS JOIN LATERAL (
            SELECT nanos FROM ledger_entry
            WHERE account_id = wanted.id AND id >= place.id ORDER BY account_id, id
        ) AS since)::bigint
FROM unnest(%(places)s::bigint[]) AS place (id)
"""
# The entries of the transactions about the first moment and before the second.
EDGES = """
SELECT (SELECT min(entry.id) FROM (
    SELECT id FROM ledger_transaction
    WHERE organization_id = %(organization)s AND posted_at >= %(start)s
    ORDER BY posted_at LIMIT %(skew)s
) AS moved JOIN ledger_entry AS entry ON entry.transaction_id = moved.id),
(SELECT max(entry.id) FROM (
    SELECT id FROM ledger_transaction
    WHERE organization_id = %(organization)s AND posted_at < %(end)s
    ORDER BY posted_at DESC LIMIT %(skew)s
) AS moved JOIN ledger_entry AS entry ON entry.transaction_id = moved.id)
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Before an entry, and the balance there (debits positive)."""

    entry_id: int
    balance_nanos: int


@dataclass(frozen=True, slots=True)
class StatementLine:
    """One entry: what it moved and the balance after it, debits positive."""

    entry_id: int
    nanos: int
    transaction_id: str
    source: str
    cause: str
    posted_at: datetime
    accounted_on: date
    owner_id: str
    balance_nanos: int


@dataclass(frozen=True, slots=True)
class Range:
    """What of a statement is asked for: posted in [start, end), of some causes."""

    start: datetime | None = None
    end: datetime | None = None
    cause: str = ""

    def holds(self, line: StatementLine) -> bool:
        """Whether a line is asked for."""
        return (
            (self.start is None or line.posted_at >= self.start)
            and (self.end is None or line.posted_at < self.end)
            and self.cause in ("", line.cause)
        )


@dataclass(frozen=True, slots=True)
class Statement:
    """One page, the newest line first; `older` is where the next one begins."""

    lines: Sequence[StatementLine]
    older: Place | None
    walked_to: datetime | None = None
    """How far a filtered page looked before it gave up for now; None where it found enough."""


def balances_before(accounts: Sequence[int], entry_ids: Sequence[int]) -> list[Place]:
    """Return what accounts held before each of some entries."""
    values = {"accounts": list(accounts), "places": list(set(entry_ids))}
    with connection.cursor() as cursor:
        cursor.execute(BALANCES, values)
        found = {entry_id: int(nanos) for entry_id, nanos in cursor.fetchall()}
    return [Place(entry_id, found[entry_id]) for entry_id in entry_ids]


def edges(organization_id: str, asked: Range) -> tuple[int, int]:
    """Return the entries that a range lies between: from the first on, before the second. Where
    moments and entries are ordered differently it is a little more than the range."""
    if asked.start is None and asked.end is None:
        return 0, LAST
    values: dict[str, Any] = {
        "organization": organization_id, "skew": SKEW_TRANSACTIONS,
        "start": asked.start or EARLIEST, "end": asked.end or LATEST,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(EDGES, values)
        first, last = cursor.fetchone()
    floor = 0 if asked.start is None else LAST if first is None else first
    return floor, LAST if asked.end is None else 0 if last is None else last + 1


def page(
    accounts: Sequence[int], asked: Range, *, bounds: tuple[int, int], rows_max: int,
    begin: Place | None = None,
) -> Statement:  # fmt: skip
    """Return the newest lines of a range, or those before `begin`."""
    floor, before = bounds
    place = begin if begin is not None and begin.entry_id <= before else None
    most = rows_max + 1 if asked == Range() else WALKED_MAX + 1
    rows = _entries(
        NEWEST, accounts, floor, place.entry_id if place else before, most,
        is_known=place is not None,
    )  # fmt: skip
    if not rows:
        return Statement((), None)
    walked, places = _walked(rows, place.balance_nanos if place else int(rows[0][-1]))
    lines = [line for line in walked[: most - 1] if asked.holds(line)]
    if len(lines) > rows_max:
        return Statement(lines[:rows_max], places[walked.index(lines[rows_max])])
    if len(walked) < most:
        return Statement(lines, None)
    is_short = len(lines) < rows_max
    return Statement(lines, places[most - 1], walked[-2].posted_at if is_short else None)


def _walked(rows: Sequence[tuple], balance_nanos: int) -> tuple[list[StatementLine], list[Place]]:
    """Return the lines of entries, the newest first, and the place that each begins at."""
    lines, places, place = [], [], Place(rows[0][0] + 1, balance_nanos)
    for *row, _ in rows:
        lines.append(StatementLine(*(*row, place.balance_nanos)))
        places.append(place)
        place = Place(row[0], place.balance_nanos - row[1])
    return lines, places


def every_line(
    accounts: Sequence[int], asked: Range, *, bounds: tuple[int, int]
) -> Iterator[list[StatementLine]]:
    """Yield all lines of a range, the oldest first, some at a time."""
    floor, before = bounds
    if floor >= before or not accounts:
        return
    (place,) = balances_before(accounts, [floor])
    while rows := _entries(OLDEST, accounts, place.entry_id, before, FILE_PAGE):
        lines, balance = [], place.balance_nanos
        for row in rows:
            balance += row[1]
            lines.append(StatementLine(*(*row, balance)))
        place = Place(rows[-1][0] + 1, balance)
        yield [line for line in lines if asked.holds(line)]


def _entries(
    query: str, accounts: Sequence[int], floor: int, before: int, most: int, **more: bool
) -> list[tuple]:
    values: dict[str, Any] = {
        "accounts": list(accounts),
        "floor": floor,
        "before": before,
        "most": most,
        **more,
    }
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        return cursor.fetchall()
