"""Do engines and books agree? Tokens that each engine counted against those of its usage events.

A difference is explained by what is known to make one, and by no more than that can make: abort,
loss, choices, the edge of the hour. What is left over, either way, is an alarm: tokens that nobody
pays for, or that nobody made.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from django.db import connection

from billing.economics.replica_hours import ReplicaHour, replica_hours
from billing.economics.unsampled import Unsampled, unsampled
from serving.contract.ids import id_floor

STEP_TOKENS = 1
"""An engine step makes one token per sequence: what may be on its way when a client hangs up."""
PROBE_TOKENS = 16
"""Test generations that the fleet gave up on, or died before it noted them."""
LAG = timedelta(seconds=2)
"""A sample is of the fleet's last look at the engine, up to so long before."""
LONGEST = timedelta(hours=1)
"""No request takes longer."""
SETTLED_AFTER = timedelta(minutes=15)
"""An hour is judged so long after its end: gateways may still hold events of it."""
ONE_HOUR = timedelta(hours=1)

# The events of each window, by what of them explains a difference. An event belongs to the window
# it was received in; those that begin before it or end after it are partly another's. Lost events
# name no replica: they may have been any of their deployment's. Windows meet events by who served
# and when, to the hour: each event's moment is worked out once, then compared with a few windows.
USAGE_OF_WINDOWS = """
WITH span AS (
    SELECT * FROM unnest(
        %(places)s::int[], %(replica_ids)s::text[], %(deployment_ids)s::text[],
        %(begins_at)s::timestamptz[], %(ends_at)s::timestamptz[]
    ) AS span (place, replica_id, deployment_id, begins_at, ends_at)
), bucket AS MATERIALIZED (
    SELECT span.*, server, hour_at FROM span
    CROSS JOIN LATERAL unnest(ARRAY[replica_id, 'lost ' || deployment_id]) AS server
    CROSS JOIN LATERAL generate_series(
        date_trunc('hour', begins_at - %(longest)s, 'UTC'), ends_at, interval '1 hour'
    ) AS hour_at
), fact AS (
    SELECT event_id, origin_id, outcome, input_tokens, output_tokens, total_seconds
    FROM metering_usage_event e WHERE event_id >= %(first_id)s AND event_id < %(end_id)s
    AND NOT EXISTS (SELECT FROM metering_usage_correction c WHERE c.event_id = e.event_id)
    UNION ALL
    SELECT event_id, origin_id, outcome, input_tokens, output_tokens, total_seconds
    FROM metering_usage_correction WHERE event_id >= %(first_id)s AND event_id < %(end_id)s
), origin AS (
    SELECT id, coalesce(nullif(replica_id, ''), 'lost ' || deployment_id) AS server,
        replica_id <> '' AS is_placed
    FROM metering_origin
    WHERE replica_id = ANY(%(replica_ids)s)
        OR replica_id = '' AND deployment_id = ANY(%(deployment_ids)s)
), dated AS MATERIALIZED (
    SELECT outcome, input_tokens, output_tokens, total_seconds, server, is_placed,
        metering_received_at(event_id) AS received_at
    FROM fact JOIN origin ON origin.id = fact.origin_id
), usage AS MATERIALIZED (
    SELECT *, date_trunc('hour', received_at, 'UTC') AS hour_at,
        received_at + total_seconds * interval '1 second' AS ended_at
    FROM dated
), seen AS (
    SELECT place, usage.*, received_at >= begins_at AS is_inside,
        ended_at > ends_at - %(lag)s AS ends_later
    FROM bucket JOIN usage USING (server, hour_at)
    WHERE received_at < ends_at
    AND (received_at >= begins_at OR ended_at > begins_at - %(lag)s)
)
SELECT place,
    count(*) FILTER (WHERE is_placed AND is_inside),
    coalesce(sum(input_tokens) FILTER (WHERE is_placed AND is_inside), 0)::bigint,
    coalesce(sum(output_tokens) FILTER (WHERE is_placed AND is_inside), 0)::bigint,
    coalesce(max(input_tokens) FILTER (WHERE is_placed), 0),
    coalesce(max(output_tokens) FILTER (WHERE is_placed), 0),
    count(*) FILTER (WHERE is_placed AND is_inside AND input_tokens > 0
        AND outcome NOT IN ('completed', 'refused_by_engine')),
    count(*) FILTER (WHERE is_inside AND input_tokens = 0 AND outcome <> 'refused_by_engine'
        AND (is_placed OR outcome = 'gateway_lost')),
    coalesce(sum(input_tokens) FILTER (WHERE is_placed AND NOT is_inside), 0)::bigint,
    coalesce(sum(output_tokens) FILTER (WHERE is_placed AND NOT is_inside), 0)::bigint,
    coalesce(sum(input_tokens) FILTER (WHERE is_placed AND is_inside AND ends_later), 0)::bigint,
    coalesce(sum(output_tokens) FILTER (WHERE is_placed AND is_inside AND ends_later), 0)::bigint
FROM seen GROUP BY place
"""


@dataclass(frozen=True, slots=True)
class WindowUsage:
    """The usage events of one replica's window, all outcomes.

    `cut_count` are those that were broken off with some tokens known, `unknown_count` those of
    which none is known, `earlier_…` what began in the window before and ended in this one,
    `later_…` what began in this one and ended in the next.
    """

    request_count: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    input_tokens_max: int = 0
    output_tokens_max: int = 0
    cut_count: int = 0
    unknown_count: int = 0
    earlier_input_tokens: int = 0
    earlier_output_tokens: int = 0
    later_input_tokens: int = 0
    later_output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Reason:
    """Why engine and events may differ, and by how many tokens at most; `side` counted more."""

    words: str
    side: Literal["engine", "events"]
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Reconciled:
    """One replica's hour: its counters, its events, and why they may differ."""

    engine: ReplicaHour
    events: WindowUsage
    reasons: tuple[Reason, ...]
    is_settled: bool
    is_sampled: bool = True
    """Without a sample, the engine's figures are none at all, and every token is unexplained."""

    @property
    def input_difference_tokens(self) -> int:
        """What the engine counted beyond the events; negative where they say more."""
        return self.engine.input_tokens - self.events.input_tokens

    @property
    def output_difference_tokens(self) -> int:
        """What the engine counted beyond the events; negative where they say more."""
        return self.engine.output_tokens - self.events.output_tokens

    @property
    def unexplained_input_tokens(self) -> int:
        """The difference beyond what all reasons together can make."""
        most = self._most("engine", "input_tokens"), self._most("events", "input_tokens")
        return _beyond(self.input_difference_tokens, *most)

    @property
    def unexplained_output_tokens(self) -> int:
        """The difference beyond what all reasons together can make."""
        most = self._most("engine", "output_tokens"), self._most("events", "output_tokens")
        return _beyond(self.output_difference_tokens, *most)

    @property
    def is_alarming(self) -> bool:
        """Whether something is left over of an hour that all events have had time to reach."""
        left_over = self.unexplained_input_tokens or self.unexplained_output_tokens
        return self.is_settled and bool(left_over)

    def _most(self, side: str, meter: str) -> int:
        return sum(getattr(reason, meter) for reason in self.reasons if reason.side == side)


def reconcile(
    start: datetime, end: datetime, *, now: datetime, replica_id: str | None = None
) -> list[Reconciled]:
    """Compare the hours of every replica, or one, in [start, end), both full hours (UTC), in order
    of time. Usage of replicas that nobody sampled (any more) is a row of its own."""
    hours = replica_hours(start, end, replica_id=replica_id)
    usage = _usage_of(hours)
    judged_until = now - SETTLED_AFTER - ONE_HOUR
    found = [
        Reconciled(hour, events, reasons_of(hour, events), hour.hour_at <= judged_until)
        for hour, events in zip(hours, usage, strict=True)
    ]
    found += [
        _of_events_alone(one, is_settled=one.hour_at <= judged_until)
        for one in unsampled(start, end, replica_id=replica_id)
    ]
    return sorted(found, key=_place)


def reasons_of(engine: ReplicaHour, events: WindowUsage) -> tuple[Reason, ...]:
    """Return what may make engine and events differ in an hour, those that occurred alone."""
    input_max = max(events.input_tokens_max, _each(engine.input_tokens, engine.requests))
    output_max = max(events.output_tokens_max, _each(engine.output_tokens, engine.requests))
    extra_count = max(0, engine.requests - events.request_count)
    reasons = (
        Reason("test generations that the fleet lost sight of", "engine", *[PROBE_TOKENS] * 2),
        Reason(
            f"requests broken off, each within an engine step ({events.cut_count})",
            "engine",
            output_tokens=events.cut_count * STEP_TOKENS,
        ),
        Reason(
            "requests lost, broken off or outrun before any token was known"
            f" ({events.unknown_count})",
            "engine",
            events.unknown_count * input_max,
            events.unknown_count * output_max,
        ),
        Reason(
            f"more requests than events ({extra_count}): choices beyond the first, of which each"
            " counts the prompt, and tries that another replica took over",
            "engine",
            extra_count * input_max,
            extra_count * STEP_TOKENS,
        ),
        Reason(
            "requests from the hour before that ended in this one",
            "engine",
            events.earlier_input_tokens,
            events.earlier_output_tokens,
        ),
        Reason(
            "requests of this hour that ended in the next one",
            "events",
            events.later_input_tokens,
            events.later_output_tokens,
        ),
    )
    return tuple(one for one in reasons if one.input_tokens or one.output_tokens)


def _usage_of(hours: Sequence[ReplicaHour]) -> list[WindowUsage]:
    """Return the usage of each window, in their order."""
    if not hours:
        return []
    values: dict[str, Any] = {
        "places": list(range(len(hours))),
        "replica_ids": [hour.replica_id for hour in hours],
        "deployment_ids": [hour.deployment_id for hour in hours],
        "begins_at": [hour.begins_at for hour in hours],
        "ends_at": [hour.ends_at for hour in hours],
        "first_id": id_floor(min(hour.begins_at for hour in hours) - LONGEST),
        "end_id": id_floor(max(hour.ends_at for hour in hours)),
        "longest": LONGEST,
        "lag": LAG,
    }
    with connection.cursor() as cursor:
        cursor.execute(USAGE_OF_WINDOWS, values)
        found = {row[0]: WindowUsage(*row[1:]) for row in cursor.fetchall()}
    return [found.get(place, WindowUsage()) for place in range(len(hours))]


def _of_events_alone(one: Unsampled, *, is_settled: bool) -> Reconciled:
    ends_at = one.hour_at + ONE_HOUR
    nothing = ReplicaHour(
        replica_id=one.replica_id,
        deployment_id=one.deployment_id,
        hour_at=one.hour_at,
        begins_at=max(one.hour_at, one.sampled_until or one.hour_at),
        ends_at=ends_at,
        input_tokens=0,
        output_tokens=0,
        requests=0,
        seconds=0,
        ready_seconds=0,
        busy_seconds=0,
        cost_nanos=0,
        busy_cost_nanos=0,
        is_cost_known=False,
    )
    events = WindowUsage(one.request_count, one.input_tokens, one.output_tokens)
    return Reconciled(nothing, events, (), is_settled, is_sampled=False)


def _place(one: Reconciled) -> tuple[datetime, str, str]:
    return one.engine.hour_at, one.engine.deployment_id, one.engine.replica_id


def _beyond(difference: int, engine_more_max: int, events_more_max: int) -> int:
    if difference > engine_more_max:
        return difference - engine_more_max
    return min(0, difference + events_more_max)


def _each(total: int, count: int) -> int:
    return total // count if count > 0 else 0
