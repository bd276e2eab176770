"""The follower `postings`: charges that the ledger has yet to book, by organization and day.

Usage draws the credit that was valid when it was received, so charges are told apart by the
soonest expiry after that moment; only organizations with credit that expires have several.
"""

from django.db import connection

from billing.credit.services.expiries import hold_expiries
from billing.following.cursor import Page

ADD = """
/* Add a page's charges to what is unposted. */
WITH expiring AS MATERIALIZED (
    SELECT organization_id, array_agg(DISTINCT expires_at ORDER BY expires_at) AS ends
    FROM credit_grant WHERE expires_at IS NOT NULL AND reversed_at IS NULL
    GROUP BY organization_id
), charged AS (
    SELECT usage.organization_id, usage.accounted_on,
        CASE WHEN ends IS NOT NULL
            THEN ends[width_bucket(metering_received_at(usage.event_id), ends) + 1]
        END AS received_before,
        sum(sign * (input_nanos + cached_input_nanos + output_nanos))::bigint AS nanos
    FROM following_usage AS usage LEFT JOIN expiring USING (organization_id)
    WHERE {condition} AND NOT is_waived
    GROUP BY 1, 2, 3
)
INSERT INTO credit_unposted_usage AS unposted
    (organization_id, accounted_on, received_before, nanos)
SELECT organization_id, accounted_on, received_before, nanos FROM charged
WHERE nanos <> 0 ORDER BY organization_id, accounted_on, received_before
ON CONFLICT (organization_id, accounted_on, received_before)
DO UPDATE SET nanos = unposted.nanos + excluded.nanos
"""
ADD_PAGE = ADD.format(condition="ingested_xid >= %s::xid8 AND ingested_xid < %s::xid8")


def follow_postings(page: Page) -> None:
    """Add a page's charges to what is unposted. A grant beside it waits until this commits."""
    hold_expiries()
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL jit = off")
        # The newest transactions are beyond all statistics: guessed to be few, they would be
        # joined with every grant in turn.
        cursor.execute("SET LOCAL enable_nestloop = off")
        cursor.execute(ADD_PAGE, page.bounds)
