"""What an organization used in a month of the books: by what was sold, by day, and what of it the
ledger says is owed. Asks hour rollups and the ledger; a month that is closed answers the same for
ever."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, NamedTuple

from django.db import connection

from billing.invoicing.periods import Period
from serving.contract.ids import id_floor
from serving.contract.usage import BILLABLE

METERS = ("input", "cached_input", "output")
REACH = timedelta(days=100)
"""How long before the month its late usage was received: ingest takes 90 days."""
DONE = " + ".join(f"{outcome}_count" for outcome in sorted(BILLABLE))

# Late usage is told apart by the month it was received in.
USED = f"""
/* What an organization used in a month of the books, by what was sold and by day, and from which
   hour to which it has requests that nobody pays for. */
SELECT supply.model_id, supply.variant_id, supply.tier, supply.price_id,
    least(date_trunc('month', bucket_at, 'UTC')::date, %(first)s::date) AS received_on,
    accounted_on,
    sum(input_tokens - cached_input_tokens)::bigint, sum(cached_input_tokens)::bigint,
    sum(output_tokens)::bigint, sum(input_nanos)::bigint, sum(cached_input_nanos)::bigint,
    sum(output_nanos)::bigint,
    min(bucket_at) FILTER (WHERE waived_nanos <> 0 OR request_count <> {DONE}),
    max(bucket_at) FILTER (WHERE waived_nanos <> 0 OR request_count <> {DONE})
FROM following_hour_rollup AS rollup JOIN metering_supply AS supply ON supply.id = supply_id
WHERE organization_id = %(organization_id)s AND accounted_on BETWEEN %(first)s AND %(last)s
    AND bucket_at >= %(since)s AND bucket_at < %(until)s
GROUP BY 1, 2, 3, 4, 5, 6
"""  # noqa: S608 -- constants of this module
# Rollups count the tokens of all requests, an invoice those that are paid for.
WAIVED = """
/* Tokens of requests that nobody pays for, by what was sold. */
SELECT supply.model_id, supply.variant_id, supply.tier, supply.price_id,
    least(date_trunc('month', metering_received_at(event_id), 'UTC')::date, %(first)s::date),
    sum(sign * (input_tokens - cached_input_tokens))::bigint,
    sum(sign * cached_input_tokens)::bigint, sum(sign * output_tokens)::bigint
FROM following_usage AS usage JOIN metering_supply AS supply ON supply.id = supply_id
WHERE organization_id = %(organization_id)s AND accounted_on BETWEEN %(first)s AND %(last)s
    AND event_id >= %(low)s::uuid AND event_id < %(high)s::uuid AND is_waived
GROUP BY 1, 2, 3, 4, 5
"""
# Usage is posted after its day began; five minutes are what a gateway's clock may be ahead.
POSTED = """
/* What the ledger charged an organization for usage of a month, and what of it no credit met. */
SELECT coalesce(-sum(nanos) FILTER (WHERE account.kind = 'revenue'), 0)::bigint,
    coalesce(sum(nanos) FILTER (WHERE account.kind = 'accounts_receivable'), 0)::bigint
FROM ledger_transaction AS posted JOIN ledger_entry AS entry ON entry.transaction_id = posted.id
JOIN ledger_account AS account ON account.id = entry.account_id
WHERE posted.organization_id = %(organization_id)s AND posted.kind = 'usage'
    AND posted.accounted_on BETWEEN %(first)s AND %(last)s
    AND posted.posted_at >= %(began)s::timestamptz - interval '1 hour'
"""


class Ware(NamedTuple):
    """What was sold, and the month (its first day) in which it was received."""

    model_id: str
    variant_id: str
    tier: str
    price_id: str
    received_on: date


@dataclass(frozen=True, slots=True)
class Sold:
    """Tokens and nanos of one ware by meter, in the order of METERS; input is its uncached part.

    Only what is paid for.
    """

    ware: Ware
    tokens: list[int]
    nanos: list[int]


@dataclass(frozen=True, slots=True)
class Used:
    """A month of the books: what was sold, and each day's charges by meter, in nanos."""

    sold: list[Sold]
    days: list[list[int]]

    @property
    def nanos(self) -> int:
        """All of it."""
        return sum(sum(one.nanos) for one in self.sold)


@dataclass(frozen=True, slots=True)
class Posted:
    """What the ledger charged for usage in all, and what of it no credit covered, in nanos."""

    charged_nanos: int
    owed_nanos: int


def used(organization_id: str, period: Period) -> Used:
    """Return what an organization is charged for in a month of the books."""
    values = _values(organization_id, period)
    with connection.cursor() as cursor:
        cursor.execute(USED, values)
        rows = cursor.fetchall()
        waived = _waived(cursor, values, rows)
    return Used(_sold(rows, waived), _days(rows, period))


def posted(organization_id: str, period: Period) -> Posted:
    """Return what the ledger holds of a month's usage."""
    with connection.cursor() as cursor:
        cursor.execute(POSTED, _values(organization_id, period))
        return Posted(*cursor.fetchone())


def _values(organization_id: str, period: Period) -> dict[str, Any]:
    return {
        "organization_id": organization_id,
        "first": period.starts_on,
        "last": period.last_day,
        "began": period.starts_at,
        "since": period.starts_at - REACH,
        "until": period.ends_at,
    }


def _waived(
    cursor: Any, values: dict[str, Any], rows: list[tuple[Any, ...]]
) -> dict[Ware, list[int]]:
    """Return the tokens of requests that nobody pays for; events are read only where some are."""
    failed = [row[12:14] for row in rows if row[12] is not None]
    if not failed:
        return {}
    first, last = min(one[0] for one in failed), max(one[1] for one in failed)
    bounds = {"low": str(id_floor(first)), "high": str(id_floor(last + timedelta(hours=1)))}
    cursor.execute(WAIVED, values | bounds)
    return {Ware(*row[:5]): list(row[5:]) for row in cursor.fetchall()}


def _sold(rows: list[tuple[Any, ...]], waived: dict[Ware, list[int]]) -> list[Sold]:
    tokens: dict[Ware, list[int]] = defaultdict(lambda: [0] * len(METERS))
    nanos: dict[Ware, list[int]] = defaultdict(lambda: [0] * len(METERS))
    for row in rows:
        ware = Ware(*row[:5])
        tokens[ware] = _added(tokens[ware], row[6:9])
        nanos[ware] = _added(nanos[ware], row[9:12])
    for ware, free in waived.items():
        tokens[ware] = _added(tokens[ware], [-count for count in free])
    return [Sold(ware, tokens[ware], sums) for ware, sums in nanos.items() if any(sums)]


def _days(rows: list[tuple[Any, ...]], period: Period) -> list[list[int]]:
    days = [[0] * len(METERS) for _ in range(period.days)]
    for row in rows:
        place = (row[5] - period.starts_on).days
        days[place] = _added(days[place], row[9:12])
    return days


def _added(one: Sequence[int], other: Sequence[int]) -> list[int]:
    return [left + right for left, right in zip(one, other, strict=True)]
