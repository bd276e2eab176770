"""The follower `postings`: charges that the ledger has yet to book, by organization and day.

Usage draws the credit that was valid when it was received, so charges are told apart by the
soonest expiry after that moment; only organizations with credit that expires have several. Grants
that expired before the page's oldest request aren't read.
"""

from django.db import connection

from billing.credit.services.expiries import hold_expiries
from billing.following.cursor import Page

ADD = """
/* Add a page's charges to what is unposted. */
WITH page AS MATERIALIZED (
    SELECT organization_id, accounted_on, metering_received_at(event_id) AS received_at,
        sign * (input_nanos + cached_input_nanos + output_nanos) AS nanos
    FROM following_usage WHERE {condition} AND NOT is_waived
), expiring AS MATERIALIZED (
    SELECT organization_id, array_agg(DISTINCT expires_at ORDER BY expires_at) AS ends
    FROM credit_grant
    WHERE expires_at > (SELECT min(received_at) FROM page) AND reversed_at IS NULL
    GROUP BY organization_id
), charged AS (
    SELECT organization_id, accounted_on,
        CASE WHEN ends IS NOT NULL THEN ends[width_bucket(received_at, ends) + 1] END
            AS received_before,
        sum(nanos)::bigint AS nanos
    FROM page LEFT JOIN expiring USING (organization_id)
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
        # The page's oldest request is not known when this is planned: a third of all grants would
        # be guessed to expire after it, and all of them read.
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL work_mem = '64MB'")
        cursor.execute(ADD_PAGE, page.bounds)
