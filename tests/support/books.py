"""The books as an auditor reads them: straight from PostgreSQL, past the code under test."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import psycopg
from django.db import connection
from psycopg.rows import dict_row

DIFFERENCES = """
SELECT budget.id, budget.pending_nanos, coalesce(sum(credit_held(lease.keep_nanos,
    lease.settled_nanos, lease.closed_at)), 0)::bigint AS held
FROM credit_budget AS budget LEFT JOIN credit_lease AS lease ON lease.budget_id = budget.id
GROUP BY budget.id
HAVING budget.pending_nanos <> coalesce(sum(credit_held(lease.keep_nanos, lease.settled_nanos,
    lease.closed_at)), 0)
"""
"""Budgets whose pending is not the sum of what their leases hold."""


def differences() -> list[tuple[int, int, int]]:
    """Return the budgets that say something else than their leases."""
    with connection.cursor() as cursor:
        cursor.execute(DIFFERENCES)
        return cursor.fetchall()


class Books:
    """A fresh connection for every question, so that a killed server harms no test."""

    def __init__(self, database_url: str) -> None:
        self.database_url = database_url

    def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        with psycopg.connect(self.database_url, connect_timeout=2) as connection:
            return connection.cursor(row_factory=dict_row).execute(query, values).fetchall()

    def event_count(self) -> int:
        return self.rows("SELECT count(*) AS n FROM metering_usage_event")[0]["n"]

    def events(self, event_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the booked events of `event_ids`, by id."""
        query = """
            SELECT *, CASE WHEN is_waived THEN 0
                ELSE input_nanos + cached_input_nanos + output_nanos END AS charged_nanos
            FROM metering_usage_event WHERE event_id = ANY(%s::uuid[])
        """
        return {str(row["event_id"]): row for row in self.rows(query, list(event_ids))}

    def tokens(self) -> Counter[str]:
        """Return the input and output tokens of all events."""
        query = (
            "SELECT coalesce(sum(input_tokens), 0)::bigint AS input,"
            " coalesce(sum(output_tokens), 0)::bigint AS output FROM metering_usage_event"
        )
        return Counter(self.rows(query)[0])

    def ledger_sum_nanos(self) -> int:
        """Return all debits minus all credits: zero in sound books."""
        return self.rows("SELECT coalesce(sum(nanos), 0)::bigint AS n FROM ledger_entry")[0]["n"]
