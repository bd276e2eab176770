"""What each replica counted and cost by the hour: the differences of its samples.

The time between two samples belongs to the hour that it ended in, so that nothing is lost where a
fleet was away: its next sample tells it all, and the window of that hour is the longer. Half a
minute of grace lets the sample of a full hour, taken a moment later, end the hour before.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from django.db import connection

Step = Literal["hour", "day"]

# Each interval between a replica's samples (its first begins with its life), summed by the hour.
# Each life is read in order, once, from its last sample before the time that is asked about.
# A cost that was unknown when the sample came is what the deployment costs now, or unknown still.
HOURS = """
WITH hour AS (
    SELECT life.replica_id, life.deployment_id, by_hour.*
    FROM economics_engine_life life
    LEFT JOIN catalog_deployment deployment ON deployment.id = life.deployment_id
    CROSS JOIN LATERAL (
        SELECT date_trunc('hour', ends_at - interval '30 seconds', 'UTC') AS hour_at,
            min(begins_at) AS begins_at, max(ends_at) AS ends_at,
            {sums}
            round(sum(seconds))::bigint AS seconds, sum(busy_seconds)::bigint AS busy_seconds,
            coalesce(round(sum(seconds * cost) / 3600), 0)::bigint AS cost_nanos,
            coalesce(round(sum(least(busy_seconds, seconds) * cost) / 3600), 0)::bigint
                AS busy_cost_nanos,
            bool_and(cost IS NOT NULL) AS is_cost_known
        FROM (
            SELECT s.at AS ends_at, coalesce(lag(s.at) OVER life, life.started_at) AS begins_at,
                {steps}
                s.busy_seconds - lag(s.busy_seconds, 1, 0::bigint) OVER life AS busy_seconds,
                extract(epoch FROM s.at - coalesce(lag(s.at) OVER life, life.started_at))
                    AS seconds,
                coalesce(s.hourly_cost_nanos, deployment.hourly_cost_nanos) AS cost
            FROM economics_engine_sample s
            WHERE s.life_id = life.id AND s.at <= %(end)s + interval '30 seconds'
            AND s.at >= coalesce((
                SELECT max(at) FROM economics_engine_sample
                WHERE life_id = life.id AND at <= %(start)s + interval '30 seconds'
            ), '-infinity')
            WINDOW life AS (ORDER BY s.at)
        ) step
        WHERE ends_at > %(start)s + interval '30 seconds' GROUP BY 1
    ) by_hour
    WHERE life.started_at < %(end)s AND life.replica_id = coalesce(%(replica_id)s, life.replica_id)
)
"""
COUNTED = {
    "input_tokens": "s.input_tokens - s.probe_input_tokens",
    "output_tokens": "s.output_tokens - s.probe_output_tokens",
    "requests": "s.requests - s.probe_requests",
    "ready_seconds": "s.ready_seconds",
}
STEPS = "".join(
    f"{what} - lag({what}, 1, 0::bigint) OVER life AS {name}, " for name, what in COUNTED.items()
)
SUMS = "".join(f"sum({name})::bigint AS {name}, " for name in COUNTED)
# Every replica's hours, each by itself.
BY_HOUR = f"""{HOURS.format(steps=STEPS, sums=SUMS)}
SELECT replica_id, deployment_id, hour_at, begins_at, ends_at, input_tokens, output_tokens,
    requests, seconds, ready_seconds, busy_seconds, cost_nanos, busy_cost_nanos, is_cost_known
FROM hour ORDER BY 3, 2, 1
"""  # noqa: S608 -- constants of this module
# The same hours, those of a deployment together, by the hour or the day.
BY_DEPLOYMENT = f"""{HOURS.format(steps="", sums="")}
SELECT deployment_id, date_trunc(%(step)s, hour_at, 'UTC'), sum(seconds)::bigint,
    sum(cost_nanos)::bigint, sum(busy_cost_nanos)::bigint, bool_and(is_cost_known)
FROM hour GROUP BY 1, 2 ORDER BY 2, 1
"""  # noqa: S608 -- constants of this module
# The most hours that replicas can have in a time: what telling each by itself would cost.
HOUR_COUNT = """
SELECT coalesce(sum(ceil(extract(epoch FROM
    least(last.at, %(end)s) - greatest(started_at, %(start)s)) / 3600) + 1), 0)::bigint
FROM economics_engine_life life CROSS JOIN LATERAL (
    SELECT max(at) AS at FROM economics_engine_sample WHERE life_id = life.id
) last
WHERE started_at < %(end)s AND last.at > %(start)s
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


@dataclass(frozen=True, slots=True)
class DeploymentHours:
    """What all replicas of a deployment cost in the hour or the UTC day from `hour_at` on."""

    deployment_id: str
    hour_at: datetime
    seconds: int
    cost_nanos: int
    busy_cost_nanos: int
    is_cost_known: bool


def deployment_hours(start: datetime, end: datetime, step: Step) -> list[DeploymentHours]:
    """Return the hours of every deployment's replicas in [start, end), both full hours (UTC),
    added up by `step`: to the nano what `replica_hours` come to."""
    values = {"start": start, "end": end, "replica_id": None, "step": step}
    with connection.cursor() as cursor:
        cursor.execute(BY_DEPLOYMENT, values)
        return [DeploymentHours(*row) for row in cursor.fetchall()]


def hour_count(start: datetime, end: datetime) -> int:
    """Return about how many hours `replica_hours` would return, never fewer."""
    with connection.cursor() as cursor:
        cursor.execute(HOUR_COUNT, {"start": start, "end": end})
        return int(cursor.fetchone()[0])
