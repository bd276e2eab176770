"""Beginning anew after a restore: what follows from open days is made again from their usage.

A restored database is of another lineage, and its cursors stop. Where only a dump was loaded, its
rows name transactions that this database has yet to make: they lose the name, which counts as
followed.
"""

from datetime import date, datetime

from django.db import connection, connections, transaction

from billing.following.follow import FOLLOWERS
from billing.following.models import Cursor
from billing.following.postings import ADD as ADD_CHARGES
from billing.following.rollups import statement
from billing.following.sealing import PATIENTLY
from billing.following.span import LAST_DAY, open_span
from billing.metering.days import CLOSE
from control.feed.database_identity import current_database_id

FACTS = ("metering_usage_event", "metering_usage_correction")
IS_OPEN = """
    accounted_on >= %(first)s AND (event_id >= %(low)s::uuid
    OR ingested_xid >= %(since)s::xid8 OR ingested_xid IS NULL)
"""
FORGET = "DELETE FROM {table} WHERE accounted_on >= %s"
# Of all charges of open days, take what the ledger holds beyond the sealed ones, oldest first.
TAKE_POSTED = """
WITH posted AS (
    SELECT organization_id, sum(nanos) AS nanos FROM (
        SELECT t.organization_id, -e.nanos AS nanos
        FROM ledger_transaction t JOIN ledger_entry e ON e.transaction_id = t.id
        JOIN ledger_account a ON a.id = e.account_id
        WHERE t.kind = 'usage' AND a.kind = 'revenue'
        UNION ALL
        SELECT organization_id, -(input_nanos + cached_input_nanos + output_nanos)
        FROM following_seal
    ) AS every GROUP BY 1
), piece AS (
    SELECT id, organization_id, nanos, sum(nanos) OVER (
        PARTITION BY organization_id ORDER BY accounted_on, received_before
    ) AS up_to FROM credit_unposted_usage
), due AS (
    SELECT piece.id, least(piece.nanos, greatest(up_to - coalesce(posted.nanos, 0), 0)) AS nanos
    FROM piece LEFT JOIN posted USING (organization_id)
)
UPDATE credit_unposted_usage AS unposted SET nanos = due.nanos FROM due WHERE due.id = unposted.id
"""
FOLLOW_FROM_HERE = """
UPDATE following_cursor SET lineage = %s, followed_at = at, head_at = at,
    xid = here.xid, head_xid = here.xid
FROM (
    SELECT %s::timestamptz AS at,
        (pg_current_xact_id()::text::bigint + 1)::text::xid8 AS xid
) AS here
"""
# Days closed by a transaction that this database has yet to make were closed before this one.
CLOSED_BEFORE = """
UPDATE metering_day SET closed_xid = pg_current_xact_id() WHERE closed_xid > pg_current_xact_id()
"""
IS_AHEAD = "SELECT EXISTS (SELECT FROM {table} WHERE ingested_xid > pg_current_xact_id())"
COUNT_AS_FOLLOWED = """
ALTER TABLE {table} DISABLE TRIGGER USER;
UPDATE {table} SET ingested_xid = NULL WHERE ingested_xid > pg_current_xact_id();
ALTER TABLE {table} ENABLE TRIGGER USER
"""


@transaction.atomic
def rebuild(*, now: datetime) -> date:
    """Make the rollups and the unposted usage of all open days again, and let cursors go on.

    Returns the first open day. Ingest waits meanwhile.
    """
    with connection.cursor() as cursor:
        cursor.execute(PATIENTLY)
        cursor.execute(CLOSE)
        list(Cursor.objects.select_for_update().filter(name__in=FOLLOWERS).order_by("name"))
        days = open_span()
        first = date.min if days.first == LAST_DAY else days.first
        for table in ("following_minute_rollup", "following_hour_rollup", "credit_unposted_usage"):
            cursor.execute(FORGET.format(table=table), [first])
        cursor.execute(statement(IS_OPEN), days.parameters)
        cursor.execute(ADD_CHARGES.format(condition=IS_OPEN), days.parameters)
        cursor.execute(TAKE_POSTED)
        cursor.execute("DELETE FROM credit_unposted_usage WHERE nanos = 0")
        cursor.execute(CLOSED_BEFORE)
        cursor.execute(FOLLOW_FROM_HERE, [current_database_id(), now])
    return days.first


def forget_foreign_transactions(*, using: str) -> None:
    """Take the names of transactions that are not of this database from the rows of facts.

    Done by the tables' owner, who alone may put their triggers aside.
    """
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        cursor.execute(CLOSE)
        for table in FACTS:
            cursor.execute(IS_AHEAD.format(table=table))
            if cursor.fetchone()[0]:
                cursor.execute(COUNT_AS_FOLLOWED.format(table=table))
