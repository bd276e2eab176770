"""What is left: revenue of usage events against the cost of the replicas that served it.

The rule: a replica costs its deployment's hourly cost from its start to its end. The cost of the
seconds in which it worked for customers is shared, hour by hour, among those whose requests it
received in that hour, by input and output tokens, each token alike. All other cost is idle: the
seconds in which it loaded, waited or drained, and busy hours of which no tokens are known. Shares
and idle cost add up to the whole cost, to the nano.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

from django.db import connection

from billing.economics.replica_hours import ReplicaHour, replica_hours
from control.catalog.selectors import deployments
from serving.contract.ids import id_floor

ONE_HOUR = timedelta(hours=1)
Dimension = Literal["model", "variant", "organization"]
COLUMN = {"model": "model_id", "variant": "variant_id", "organization": "organization_id"}
NOBODY: dict[str, Any] = dict.fromkeys(COLUMN.values())

# What each organization used of each replica and variant by the hour, and paid; an hour is a range
# of event ids. A lost event used and paid nothing, so its correction is all there is to add.
BY_REPLICA_AND_HOUR = """
SELECT o.replica_id, span.hour_at, supply.model_id, supply.variant_id, used.organization_id,
    sum(used.input_tokens)::bigint, sum(used.output_tokens)::bigint, sum(used.nanos)::bigint
FROM unnest(%(hours_at)s::timestamptz[], %(first_ids)s::uuid[], %(end_ids)s::uuid[])
    AS span (hour_at, first_id, end_id)
CROSS JOIN LATERAL (
    SELECT organization_id, supply_id, origin_id, sum(input_tokens) AS input_tokens,
        sum(output_tokens) AS output_tokens,
        sum(CASE WHEN is_waived THEN 0 ELSE input_nanos + cached_input_nanos + output_nanos END)
            AS nanos
    FROM (
        SELECT organization_id, supply_id, origin_id, input_tokens, output_tokens, is_waived,
            input_nanos, cached_input_nanos, output_nanos
        FROM metering_usage_event WHERE event_id >= span.first_id AND event_id < span.end_id
        UNION ALL
        SELECT organization_id, supply_id, origin_id, input_tokens, output_tokens, is_waived,
            input_nanos, cached_input_nanos, output_nanos
        FROM metering_usage_correction WHERE event_id >= span.first_id AND event_id < span.end_id
    ) AS fact
    GROUP BY organization_id, supply_id, origin_id
) AS used
JOIN metering_origin o ON o.id = used.origin_id
JOIN metering_supply supply ON supply.id = used.supply_id
GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
"""


@dataclass(frozen=True, slots=True)
class Margin:
    """Usage, revenue and cost of one organization and variant, money in nanos.

    Without an organization: the idle cost of the variant's replicas, and their seconds in all.
    Where not `is_cost_known`, some replica's hourly cost was not, and counted as nothing.
    """

    model_id: str | None
    variant_id: str | None
    organization_id: str | None
    input_tokens: int = 0
    output_tokens: int = 0
    revenue_nanos: int = 0
    cost_nanos: int = 0
    replica_seconds: int = 0
    is_cost_known: bool = True

    @property
    def margin_nanos(self) -> int:
        """Revenue less cost."""
        return self.revenue_nanos - self.cost_nanos

    @property
    def is_idle(self) -> bool:
        """Whether this is what replicas cost while they worked for nobody."""
        return self.organization_id is None

    @property
    def tokens(self) -> int:
        """What cost is shared by."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Margin") -> "Margin":
        """Return the sums of both; what they are of is the first one's."""
        return replace(
            self,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            revenue_nanos=self.revenue_nanos + other.revenue_nanos,
            cost_nanos=self.cost_nanos + other.cost_nanos,
            replica_seconds=self.replica_seconds + other.replica_seconds,
            is_cost_known=self.is_cost_known and other.is_cost_known,
        )


class Costed(Protocol):
    """What some replicas cost for a while: in all, and while they worked for customers."""

    @property
    def cost_nanos(self) -> int: ...
    @property
    def busy_cost_nanos(self) -> int: ...
    @property
    def seconds(self) -> int: ...
    @property
    def is_cost_known(self) -> bool: ...


Used = Mapping[tuple[str, datetime], Sequence[Margin]]
"""By replica and hour: who used it, each with tokens and revenue."""


def margins(start: datetime, end: datetime) -> list[Margin]:
    """Return the margin of every variant and organization in [start, end), both full hours (UTC),
    idle cost included; the dearest to serve first."""
    sold = {each.id: (each.variant.model_id, each.variant_id) for each in deployments()}
    return allot(replica_hours(start, end), _used(start, end), sold)


def allot(
    hours: Iterable[ReplicaHour], used: Used, sold: Mapping[str, tuple[str, str]]
) -> list[Margin]:
    """Share the cost of hours among those who used them; `sold` names each deployment's model and
    variant. Usage of replicas that nobody sampled has revenue and no cost."""
    parts = [row for rows in used.values() for row in rows]
    for hour in hours:
        of = sold.get(hour.deployment_id, (None, None))
        parts += shared(hour, used.get((hour.replica_id, hour.hour_at), ()), of)
    return summed(parts, ("model", "variant", "organization"))


def shared(
    cost: Costed, users: Sequence[Margin], of: tuple[str | None, str | None]
) -> list[Margin]:
    """Return each user's share of the busy cost, and as the last what is left of the whole: the
    idle cost of the model and variant `of`."""
    shares = share_out(cost.busy_cost_nanos, [user.tokens for user in users])
    rows = [
        Margin(
            user.model_id,
            user.variant_id,
            user.organization_id,
            cost_nanos=nanos,
            is_cost_known=cost.is_cost_known,
        )
        for user, nanos in zip(users, shares, strict=True)
    ]
    idle = Margin(
        *of,
        None,
        cost_nanos=cost.cost_nanos - sum(shares),
        replica_seconds=cost.seconds,
        is_cost_known=cost.is_cost_known,
    )
    return [*rows, idle]


def summed(rows: Iterable[Margin], by: Sequence[Dimension]) -> list[Margin]:
    """Return the rows added up by some of their dimensions, None in the others; the dearest to
    serve first. Idle cost stays a row of its own where organizations are told apart."""
    found: dict[tuple[Any, ...], Margin] = {}
    for row in rows:
        kept = {COLUMN[dimension]: getattr(row, COLUMN[dimension]) for dimension in by}
        key = tuple(kept.values())
        found[key] = found.get(key, Margin(**{**NOBODY, **kept})) + row
    return sorted(found.values(), key=lambda row: (-row.cost_nanos, -row.revenue_nanos))


def share_out(nanos: int, weights: Sequence[int]) -> list[int]:
    """Return `nanos` shared by weight, in whole nanos that add up to it exactly: rounded down,
    the nanos left over to the largest remainders. Without any weight nobody takes a share.

    Worked example: 100 by weights 1, 1 and 1 are 34, 33 and 33.
    """
    whole = sum(weights)
    if whole == 0:
        return [0] * len(weights)
    parts = [divmod(nanos * weight, whole) for weight in weights]
    shares = [share for share, _ in parts]
    by_remainder = sorted(range(len(parts)), key=lambda place: -parts[place][1])
    for place in by_remainder[: nanos - sum(shares)]:
        shares[place] += 1
    return shares


def _used(start: datetime, end: datetime) -> Used:
    used: dict[tuple[str, datetime], list[Margin]] = defaultdict(list)
    hours = [start + ONE_HOUR * count for count in range((end - start) // ONE_HOUR)]
    values: dict[str, Any] = {
        "hours_at": hours,
        "first_ids": [id_floor(hour) for hour in hours],
        "end_ids": [id_floor(hour + ONE_HOUR) for hour in hours],
    }
    with connection.cursor() as cursor:
        cursor.execute(BY_REPLICA_AND_HOUR, values)
        for replica_id, hour_at, *row in cursor.fetchall():
            used[replica_id, hour_at].append(Margin(*row))
    return used
