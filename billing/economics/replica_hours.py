"""What each replica counted and cost by the hour: the differences of its samples.

The time between two samples belongs to the hour that it ended in, so that nothing is lost where a
fleet was away: its next sample tells it all, and the window of that hour is the longer. Half a
minute of grace lets the sample of a full hour, taken a moment later, end the hour before.
"""

from dataclasses import dataclass
from datetime import datetime

from django.db import connection

# Each interval between a replica's samples (its first begins with its life), summed by the hour.
# A cost that was unknown when the sample came is what the deployment costs now, or unknown still.
BY_HOUR = """
WITH step AS (
    SELECT life.replica_id, life.deployment_id,
        date_trunc('hour', s.at - interval '30 seconds', 'UTC') AS hour_at,
        coalesce(p.at, life.started_at) AS begins_at, s.at AS ends_at,
        s.input_tokens - s.probe_input_tokens
            - coalesce(p.input_tokens - p.probe_input_tokens, 0) AS input_tokens,
        s.output_tokens - s.probe_output_tokens
            - coalesce(p.output_tokens - p.probe_output_tokens, 0) AS output_tokens,
        s.requests - s.probe_requests - coalesce(p.requests - p.probe_requests, 0) AS requests,
        s.ready_seconds - coalesce(p.ready_seconds, 0) AS ready_seconds,
        s.busy_seconds - coalesce(p.busy_seconds, 0) AS busy_seconds,
        extract(epoch FROM s.at - coalesce(p.at, life.started_at)) AS seconds,
        coalesce(s.hourly_cost_nanos, deployment.hourly_cost_nanos) AS hourly_cost_nanos
    FROM economics_engine_life life
    JOIN economics_engine_sample s ON s.life_id = life.id
    LEFT JOIN LATERAL (
        SELECT * FROM economics_engine_sample p WHERE p.life_id = s.life_id AND p.at < s.at
        ORDER BY p.at DESC LIMIT 1
    ) p ON true
    LEFT JOIN catalog_deployment deployment ON deployment.id = life.deployment_id
    WHERE life.started_at < %(end)s AND life.replica_id = coalesce(%(replica_id)s, life.replica_id)
    AND s.at > %(start)s + interval '30 seconds' AND s.at <= %(end)s + interval '30 seconds'
)
SELECT replica_id, deployment_id, hour_at, min(begins_at), max(ends_at),
    sum(input_tokens)::bigint, sum(output_tokens)::bigint, sum(requests)::bigint,
    round(sum(seconds))::bigint, sum(ready_seconds)::bigint, sum(busy_seconds)::bigint,
    coalesce(round(sum(seconds * hourly_cost_nanos) / 3600), 0)::bigint,
    coalesce(round(sum(least(busy_seconds, seconds) * hourly_cost_nanos) / 3600), 0)::bigint,
    bool_and(hourly_cost_nanos IS NOT NULL)
FROM step GROUP BY 1, 2, 3 ORDER BY 3, 2, 1
"""


@dataclass(frozen=True, slots=True)
class ReplicaHour:
    """A replica's customers' tokens and requests, seconds and cost in [`begins_at`, `ends_at`).

    Prompts and requests count once per choice. `busy_cost_nanos` is the part of the cost of the
    seconds in which it worked for customers. Without `is_cost_known` the cost is too low.
    """

    replica_id: str
    deployment_id: str
    hour_at: datetime
    begins_at: datetime
    ends_at: datetime
    input_tokens: int
    output_tokens: int
    requests: int
    seconds: int
    ready_seconds: int
    busy_seconds: int
    cost_nanos: int
    busy_cost_nanos: int
    is_cost_known: bool


def replica_hours(
    start: datetime, end: datetime, *, replica_id: str | None = None
) -> list[ReplicaHour]:
    """Return the hours of every replica, or one, in [start, end), both full hours (UTC), in order
    of time."""
    with connection.cursor() as cursor:
        cursor.execute(BY_HOUR, {"start": start, "end": end, "replica_id": replica_id})
        return [ReplicaHour(*row) for row in cursor.fetchall()]
