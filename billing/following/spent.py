"""What was charged in the periods of budgets by the week and the day, exact under the lock of the
balance.

Hours that the follower `rollups` has read are summed already; what it has not read yet is summed
from the usage itself. Cursor and sums are one snapshot, so nothing is counted twice or missed.
"""

from collections.abc import Collection
from typing import Any

from django.db import connection

from billing.arrays import array
from billing.credit.selectors import BudgetKey
from billing.following.rollups import NANOS
from serving.contract.budget import limited_id, period_end

CHARGED = " + ".join(NANOS)
SPENT = f"""
/* What was charged to organizations, projects and keys between two moments on the hour. */
WITH wanted AS (
    SELECT place, caller.id AS caller_id, caller.organization_id, starts_at, ends_at
    FROM unnest(%s::text[], %s::timestamptz[], %s::timestamptz[])
        WITH ORDINALITY AS asked (owner, starts_at, ends_at, place)
    JOIN metering_caller AS caller
        ON owner IN (caller.organization_id, caller.project_id, caller.key_id)
    WHERE caller.organization_id = ANY(%s)
), read AS (
    SELECT place, {CHARGED} AS nanos FROM wanted
    JOIN following_hour_rollup AS rollup USING (organization_id, caller_id)
    WHERE rollup.bucket_at >= starts_at AND rollup.bucket_at < ends_at
), unread AS (
    SELECT place, sign * ({CHARGED}) AS nanos FROM wanted
    JOIN following_usage AS used USING (organization_id, caller_id)
    WHERE used.ingested_xid >= (SELECT xid FROM following_cursor WHERE name = 'rollups')
        AND NOT used.is_waived
        AND metering_received_at(used.event_id) >= starts_at
        AND metering_received_at(used.event_id) < ends_at
)
SELECT place, sum(nanos)::bigint
FROM (SELECT * FROM read UNION ALL SELECT * FROM unread) AS every GROUP BY place
"""  # noqa: S608 -- constants of this room


def spent_in(keys: Collection[BudgetKey], organizations: list[str]) -> dict[BudgetKey, int]:
    """Return the nanos charged in the periods of budgets that have an end, by budget, which are of
    these organizations."""
    asked = list(keys)
    columns: list[Any] = [
        array(limited_id(key.budget_id) for key in asked),
        [key.starts_at for key in asked],
        [period_end(key.budget_id, key.starts_at) for key in asked],
        organizations,
    ]
    with connection.cursor() as cursor:
        cursor.execute(SPENT, columns)
        sums = dict(cursor.fetchall())
    return {key: sums.get(place, 0) for place, key in enumerate(asked, start=1)}
