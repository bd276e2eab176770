"""Checks of what the cockpit keeps, run with all others of the house."""

from billing.ledger.integrity import Check

CHECKS = (
    Check(
        "Revenue kept of sealed days is what their rollups sum to",
        """
        WITH summed AS (
            SELECT accounted_on, supply_id,
                sum(input_nanos + cached_input_nanos + output_nanos) AS nanos
            FROM following_hour_rollup JOIN cockpit_kept_day ON day = accounted_on GROUP BY 1, 2
            HAVING sum(input_nanos + cached_input_nanos + output_nanos) <> 0
        )
        SELECT accounted_on, supply_id, kept.nanos AS kept, summed.nanos AS summed
        FROM cockpit_day_revenue AS kept FULL JOIN summed USING (accounted_on, supply_id)
        WHERE kept.nanos IS DISTINCT FROM summed.nanos
        """,
    ),
)
