"""The ledger as it is stored, read once, in the order in which it was written."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

import psycopg

from tests.simulation.oracle import require

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


def read_books(monitor: psycopg.Connection) -> Books:
    """Read it. Raises BrokenError where a transaction does not sum to zero."""
    movements: dict[str, Movement] = {}
    for name, cause, source, owner, day, at, kind, account, nanos in monitor.execute(ENTRIES):
        one = movements.setdefault(name, Movement(cause, source, owner, day, at))
        one.by_account[account] += nanos
        one.by_kind[kind] += nanos
    grants = {row[4]: Grant(*row) for row in monitor.execute(GRANTS)}
    for one in movements.values():
        require(sum(one.by_kind.values()) == 0, "A ledger transaction sums to zero", one)
    return Books(list(movements.values()), grants)
