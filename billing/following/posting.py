"""Posting usage to the ledger: once per organization and day, when the day is closed and followed.

What needs a posting earlier (a payment, an expiry) makes it itself, in billing.credit.
"""

from datetime import date, datetime

from django.db import connection, transaction

from billing.credit.services.budgets import lock_budgets, open_balance
from billing.credit.services.draws import post_unposted

CHUNK = 25
"""Organizations posted in one transaction: their balances are locked for a tenth of a second."""

DUE = """
/* The next organizations with usage to post. */
SELECT DISTINCT organization_id FROM credit_unposted_usage
WHERE accounted_on <= %s AND organization_id > %s ORDER BY 1 LIMIT %s
"""
FOLLOWED_THROUGH = """
/* The last closed day whose every charge has been followed. */
SELECT max(day) FROM metering_day, following_cursor
WHERE following_cursor.name = 'postings' AND closed_xid <= following_cursor.xid
"""


def post_due(*, now: datetime) -> int:
    """Post the usage of days that are closed and followed; return how many postings were made."""
    with connection.cursor() as cursor:
        cursor.execute(FOLLOWED_THROUGH)
        through: date | None = cursor.fetchone()[0]
    return 0 if through is None else post_through(through, now=now)


def post_through(day: date, *, now: datetime) -> int:
    """Post all followed usage of a day and those before; return how many postings were made."""
    posted, last = 0, ""
    while due := _due(day, after=last):
        posted += _post(due, day, now)
        last = due[-1]
    return posted


def _due(day: date, *, after: str) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(DUE, [day, after, CHUNK])
        return [row[0] for row in cursor.fetchall()]


@transaction.atomic
def _post(organization_ids: list[str], day: date, now: datetime) -> int:
    balances = [open_balance(organization_id) for organization_id in organization_ids]
    lock_budgets([row for row in balances if row is not None])
    return post_unposted(organization_ids, now=now, through=day)


def has_unposted(day: date) -> bool:
    """Tell whether usage of a day, or of one before, is not posted yet."""
    with connection.cursor() as cursor:
        cursor.execute(DUE, [day, "", 1])
        return cursor.fetchone() is not None
