"""Usage that no engine's counter stands behind: events of replicas that no fleet samples (any
more). Their cost is unknown and their tokens are the gateway's word alone."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from serving.contract.ids import id_floor

GRACE = timedelta(minutes=2)
"""A replica that dies takes its last minute's sample along."""

# Events received after the last sample of their replica, by replica and hour. Engines elsewhere may
# have no counters: those of which no sample ever came are left out.
UNSAMPLED = """
WITH origin AS (
    SELECT o.id, o.replica_id, o.deployment_id, counted.until
    FROM metering_origin o
    LEFT JOIN catalog_deployment deployment ON deployment.id = o.deployment_id
    LEFT JOIN LATERAL (
        SELECT max(s.at) AS until FROM economics_engine_life life
        JOIN economics_engine_sample s ON s.life_id = life.id
        WHERE life.replica_id = o.replica_id
    ) counted ON true
    WHERE o.replica_id <> '' AND o.replica_id = coalesce(%(replica_id)s, o.replica_id)
    AND (counted.until < %(end)s - %(grace)s
        OR counted.until IS NULL AND deployment.engine IS DISTINCT FROM 'external')
), fact AS (
    SELECT event_id, origin_id, input_tokens, output_tokens FROM metering_usage_event
    WHERE event_id >= %(first_id)s AND event_id < %(end_id)s
    UNION ALL
    SELECT event_id, origin_id, input_tokens, output_tokens FROM metering_usage_correction
    WHERE event_id >= %(first_id)s AND event_id < %(end_id)s
)
SELECT replica_id, deployment_id, date_trunc('hour', metering_received_at(event_id), 'UTC'),
    max(until), count(*), sum(input_tokens)::bigint, sum(output_tokens)::bigint
FROM fact JOIN origin ON origin.id = fact.origin_id
WHERE until IS NULL OR metering_received_at(event_id) > until + %(grace)s
GROUP BY 1, 2, 3 HAVING sum(input_tokens) + sum(output_tokens) > 0 ORDER BY 3, 2, 1
"""


@dataclass(frozen=True, slots=True)
class Unsampled:
    """A replica's usage of an hour beyond its last sample, `sampled_until`; None without any."""

    replica_id: str
    deployment_id: str
    hour_at: datetime
    sampled_until: datetime | None
    request_count: int
    input_tokens: int
    output_tokens: int


def unsampled(start: datetime, end: datetime, *, replica_id: str | None = None) -> list[Unsampled]:
    """Return the usage received in [start, end), both full hours (UTC), that no sample covers, of
    every replica or one, in order of time."""
    values: dict[str, Any] = {
        "start": start,
        "end": end,
        "grace": GRACE,
        "first_id": id_floor(start),
        "end_id": id_floor(end),
        "replica_id": replica_id,
    }
    with connection.cursor() as cursor:
        cursor.execute(UNSAMPLED, values)
        return [Unsampled(*row) for row in cursor.fetchall()]
