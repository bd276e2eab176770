"""Checks of the books. A check is a sentence and the query that finds what contradicts it."""

from collections.abc import Mapping
from dataclasses import dataclass

from django.db import connection

SHOWN_MAX = 3


@dataclass(frozen=True, slots=True)
class Check:
    """What must hold, and SQL whose every row is a counterexample."""

    sentence: str
    counterexamples: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of a check; it holds when no counterexample was found."""

    sentence: str
    counterexample_count: int
    shown: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing contradicts the sentence."""
        return self.counterexample_count == 0


def run(check: Check, parameters: Mapping[str, str] | None = None) -> Finding:
    """Ask the database for counterexamples; `parameters` are those that the check's SQL names."""
    with connection.cursor() as cursor:
        cursor.execute(check.counterexamples, parameters)
        names = [column.name for column in cursor.description or ()]
        rows = cursor.fetchall()
    shown = tuple(
        ", ".join(f"{name}={value}" for name, value in zip(names, row, strict=True))
        for row in rows[:SHOWN_MAX]
    )
    return Finding(check.sentence, len(rows), shown)


CHECKS = (
    Check(
        "The ledger sums to zero",
        "SELECT sum(nanos) AS nanos FROM ledger_entry HAVING sum(nanos) <> 0",
    ),
    Check(
        "Every transaction has two entries or more that sum to zero",
        """
        SELECT t.id, t.source, count(e.id) AS entries, sum(e.nanos) AS nanos
        FROM ledger_transaction t LEFT JOIN ledger_entry e ON e.transaction_id = t.id
        GROUP BY t.id HAVING count(e.id) < 2 OR sum(e.nanos) <> 0
        """,
    ),
    Check(
        "Every cached balance equals the sum of its entries",
        """
        SELECT a.id, a.organization_id, a.kind, a.balance_nanos,
            coalesce(sum(e.nanos), 0) AS entries
        FROM ledger_account a LEFT JOIN ledger_entry e ON e.account_id = a.id
        GROUP BY a.id HAVING a.balance_nanos <> coalesce(sum(e.nanos), 0)
        """,
    ),
    Check(
        "No transaction moves money between organizations",
        """
        SELECT t.id, t.organization_id, a.organization_id AS account_of
        FROM ledger_entry e JOIN ledger_transaction t ON t.id = e.transaction_id
        JOIN ledger_account a ON a.id = e.account_id WHERE a.organization_id <> t.organization_id
        """,
    ),
    Check(
        "No credit is spent twice: credit accounts are never overdrawn",
        """
        SELECT id, organization_id, kind, balance_nanos FROM ledger_account
        WHERE kind IN ('customer_balance', 'promotional_credit') AND balance_nanos > 0
        """,
    ),
)
