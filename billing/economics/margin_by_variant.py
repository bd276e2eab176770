"""Margin where there is too much usage to look at each event: of sums by the hour.

Rollups know variants, not replicas. So the busy cost of all shared replicas of a variant is pooled
by the hour or by the day, and shared by that time's tokens; a dedicated replica's is its
organization's, which takes no part in the pool while its own replicas work. Revenue, tokens, the
whole cost and the idle seconds are the very same as by replica; only the shares are coarser.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.db import connection

from billing.economics.margin import Margin, shared, summed
from billing.economics.replica_hours import DeploymentHours, ReplicaHour, Step

# What each organization used of each variant by the hour or the day, and paid. Late usage is
# accounted on later days, never on earlier ones, so that the index by day finds it all.
BY_VARIANT_AND_STEP = """
SELECT date_trunc(%(step)s, r.bucket_at, 'UTC'), supply.model_id, supply.variant_id,
    r.organization_id, sum(r.input_tokens)::bigint, sum(r.output_tokens)::bigint,
    sum(r.input_nanos + r.cached_input_nanos + r.output_nanos)::bigint
FROM following_hour_rollup r JOIN metering_supply supply ON supply.id = r.supply_id
WHERE r.accounted_on >= %(first_day)s AND r.bucket_at >= %(start)s AND r.bucket_at < %(end)s
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
"""
# How many requests were received, to judge how closely they may be looked at.
REQUEST_COUNT = """
SELECT coalesce(sum(request_count), 0)::bigint FROM following_hour_rollup
WHERE accounted_on >= %(first_day)s AND bucket_at >= %(start)s AND bucket_at < %(end)s
"""


class Place(NamedTuple):
    """A variant's hour or day."""

    variant_id: str
    step_at: datetime


Used = Mapping[Place, Sequence[Margin]]
"""Who used a variant, each with tokens and revenue."""


class Sold(NamedTuple):
    """What a deployment serves, and the one organization that may use it."""

    model_id: str
    variant_id: str
    owner_id: str | None = None


@dataclass(slots=True)
class Pool:
    """What replicas of one variant cost, those of everybody's or those of one organization."""

    cost_nanos: int = 0
    busy_cost_nanos: int = 0
    seconds: int = 0
    is_cost_known: bool = True

    def add(self, hour: DeploymentHours | ReplicaHour) -> None:
        """Add hours of replicas."""
        self.cost_nanos += hour.cost_nanos
        self.busy_cost_nanos += hour.busy_cost_nanos
        self.seconds += hour.seconds
        self.is_cost_known = self.is_cost_known and hour.is_cost_known


def allot_pools(
    hours: Iterable[DeploymentHours | ReplicaHour], used: Used, sold: Mapping[str, Sold], step: Step
) -> list[Margin]:
    """Share the cost of hours among those who used their variant; `sold` knows each deployment.
    Usage of variants whose replicas nobody sampled has revenue and no cost."""
    parts = [row for rows in used.values() for row in rows]
    pools: dict[tuple[Place, Sold | None], Pool] = defaultdict(Pool)
    owners: dict[Place, set[str]] = defaultdict(set)
    for hour in hours:
        of = sold.get(hour.deployment_id)
        place = Place(of.variant_id if of else "", step_begin(hour.hour_at, step))
        pools[place, of].add(hour)
        if of and of.owner_id and hour.busy_cost_nanos:
            owners[place].add(of.owner_id)
    for (place, of), pool in pools.items():
        owner_id = of.owner_id if of else None
        users = _users(used.get(place, ()), owner_id, owners.get(place, set()))
        parts += shared(pool, users, (of.model_id, of.variant_id) if of else (None, None))
    return summed(parts, ("model", "variant", "organization"))


def used_by_variant(start: datetime, end: datetime, step: Step) -> Used:
    """Return who used each variant in [start, end), as far as rollups have followed."""
    used: dict[Place, list[Margin]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(BY_VARIANT_AND_STEP, {**_span(start, end), "step": step})
        for step_at, *row in cursor.fetchall():
            margin = Margin(*row)
            used[Place(margin.variant_id or "", step_at)].append(margin)
    return used


def request_count(start: datetime, end: datetime) -> int:
    """Return how many requests were received in [start, end), as far as rollups have followed."""
    with connection.cursor() as cursor:
        cursor.execute(REQUEST_COUNT, _span(start, end))
        return int(cursor.fetchone()[0])


def step_begin(moment: datetime, step: Step) -> datetime:
    """Return when the hour or the UTC day of a moment began."""
    hour = moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    return hour if step == "hour" else hour.replace(hour=0)


def _users(
    candidates: Sequence[Margin], owner_id: str | None, owners: set[str]
) -> Sequence[Margin]:
    """Who pays for a pool: its owner; else those without working replicas of their own, or all
    where that leaves none."""
    if owner_id is not None:
        return [one for one in candidates if one.organization_id == owner_id]
    others = [one for one in candidates if one.organization_id not in owners]
    return others if any(one.tokens for one in others) else candidates


def _span(start: datetime, end: datetime) -> dict[str, Any]:
    return {"first_day": start.astimezone(UTC).date(), "start": start, "end": end}
