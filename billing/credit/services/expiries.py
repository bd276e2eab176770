"""Expiries: usage waits for the ledger told apart by them, so while they are read none is added.

A page of usage is told apart by the expiries it sees. A grant that commits beside it posts the
usage that *it* sees. Without a lock each could miss the other: the page's usage would be told to
draw only what never expires, and stay owed while credit it may draw goes unused.
"""

from django.db import connection

LOCK_ID = 0x65_7870_6972
"""The advisory lock ("expir")."""
ADD = f"SELECT pg_advisory_xact_lock_shared({LOCK_ID})"
READ = f"SELECT pg_advisory_xact_lock({LOCK_ID})"


def may_add_expiry() -> None:
    """Keep usage from being told apart until this transaction, which adds an expiry, ends.

    Called before a balance is locked. Waits for a follower's page, a second or so.
    """
    with connection.cursor() as cursor:
        cursor.execute(ADD)


def hold_expiries() -> None:
    """Keep expiries from being added until this transaction ends; all that were are seen."""
    with connection.cursor() as cursor:
        cursor.execute(READ)
