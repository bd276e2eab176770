"""What would a draft price book have charged? Real usage of a UTC day, priced by it event by event.

A draft is replayed as if it had been in force all the time, in the order that prices have: a draft
contract prices its organization's usage alone; a draft list prices everybody's but where a contract
decided when the request was received. Usage of what the draft does not price stays as charged.

Each event is priced alone, by the band of its own input tokens and each meter rounded by itself, as
`serving.contract.price.charge` does it; SQL does the same arithmetic. What was waived stays waived.
Usage counts by the day it was received on, lost events that were corrected as their correction.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import msgspec
from django.db import connection, transaction

from billing.metering.partitions import partition_name
from control.db.privileges import UNLIMITED_TRANSACTION
from control.pricing import selectors as prices
from control.pricing.models import Price
from serving.contract.ids import id_floor

DAY = timedelta(days=1)
PATIENTLY = f"""
{UNLIMITED_TRANSACTION}; SET LOCAL statement_timeout = '150s';
SET LOCAL work_mem = '128MB'; SET LOCAL jit = off
"""
"""For a statement that reads a whole day. It writes nothing: it has no transaction id that would
keep the followers waiting."""


def charge_sql(event: str, meters: str) -> str:
    """Return what `charge` comes to by rule 2, as SQL over two aliases: tokens and meters.

    Numeric, not bigint: tokens times a price may pass 2^63. `div` drops the fraction, and nothing
    here is negative, so that half a nano and more is rounded up.
    """
    parts = (
        (f"({event}.input_tokens - {event}.cached_input_tokens)", "input_nanos"),
        (f"{event}.cached_input_tokens", "cached_input_nanos"),
        (f"{event}.output_tokens", "output_nanos"),
    )
    rounded = (
        f"div({tokens}::numeric * {meters}.{nanos} + 500000, 1000000)" for tokens, nanos in parts
    )
    return " + ".join(rounded)


_USAGE = """
    SELECT {key}.event_id, {key}.organization_id, {key}.supply_id, {key}.input_tokens,
        {key}.cached_input_tokens, {key}.output_tokens, {key}.is_waived,
        {key}.input_nanos + {key}.cached_input_nanos + {key}.output_nanos AS nanos
    FROM {table} AS {key}
    WHERE {key}.event_id >= %(first_id)s AND {key}.event_id < %(end_id)s
      AND (%(organization_id)s::text IS NULL OR {key}.organization_id = %(organization_id)s)
"""
# Each event of a day as charged and as the draft charges it, summed by organization, variant and
# tier. Bands and contract terms never overlap, so an event meets one of each at most.
REPLAY = f"""
WITH band AS MATERIALIZED (
    SELECT *, lead(input_tokens_min, 1, 2147483648)
        OVER (PARTITION BY variant_id, tier ORDER BY input_tokens_min) AS input_tokens_below
    FROM jsonb_to_recordset(%(prices)s::jsonb) AS price (
        variant_id text, tier text, input_tokens_min bigint,
        input_nanos bigint, cached_input_nanos bigint, output_nanos bigint)
), term AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(terms)s::jsonb) AS term (
        organization_id text, variant_id text, tier text, first_id uuid, end_id uuid)
), fact AS (
    {_USAGE.format(key="event", table="metering_usage_event")}
      AND NOT EXISTS (
          SELECT FROM metering_usage_correction AS real WHERE real.event_id = event.event_id)
    UNION ALL
    {_USAGE.format(key="correction", table="metering_usage_correction")}
), priced AS (
    SELECT fact.organization_id, supply.variant_id, supply.tier, fact.is_waived, fact.nanos,
        band.variant_id IS NOT NULL AND term.variant_id IS NULL AS is_repriced,
        band.variant_id IS NOT NULL AND term.variant_id IS NOT NULL AS is_under_contract,
        CASE WHEN band.variant_id IS NOT NULL AND term.variant_id IS NULL
            THEN {charge_sql("fact", "band")} ELSE fact.nanos END AS draft_nanos
    FROM fact JOIN metering_supply AS supply ON supply.id = fact.supply_id
    LEFT JOIN band ON band.variant_id = supply.variant_id AND band.tier = supply.tier
        AND fact.input_tokens >= band.input_tokens_min
        AND fact.input_tokens < band.input_tokens_below
    LEFT JOIN term ON term.organization_id = fact.organization_id
        AND term.variant_id = supply.variant_id AND term.tier = supply.tier
        AND fact.event_id >= term.first_id AND fact.event_id < term.end_id
)
SELECT organization_id, variant_id, tier, count(*), count(*) FILTER (WHERE is_repriced),
    count(*) FILTER (WHERE is_under_contract),
    coalesce(sum(nanos) FILTER (WHERE NOT is_waived), 0),
    coalesce(sum(draft_nanos) FILTER (WHERE NOT is_waived), 0),
    coalesce(sum(nanos) FILTER (WHERE is_waived), 0),
    coalesce(sum(draft_nanos) FILTER (WHERE is_waived), 0)
FROM priced GROUP BY 1, 2, 3
"""  # noqa: S608 -- constants of this module
# Whether a day was archived and its usage is no longer here. A detached partition is not read.
IS_GONE = """
SELECT EXISTS (SELECT FROM metering_day WHERE day = %s AND archived_at IS NOT NULL)
AND NOT EXISTS (
    SELECT FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
    WHERE inhparent = 'metering_usage_event'::regclass AND NOT inhdetachpending AND relname = %s
)
"""


class Band(msgspec.Struct, frozen=True):
    """A draft's price as it was when its replay began, in nanos per million tokens."""

    variant_id: str
    tier: str
    input_tokens_min: int
    input_nanos: int
    cached_input_nanos: int
    output_nanos: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """One organization's usage of a variant and tier, as charged and as the draft charges it.

    Of `request_count` the draft prices `repriced_count`; `contract_count` it would price, were
    there not a contract. Waived nanos were not charged, and would not be.
    """

    organization_id: str
    variant_id: str
    tier: str
    request_count: int
    repriced_count: int
    contract_count: int
    charged_nanos: int
    draft_nanos: int
    waived_nanos: int
    draft_waived_nanos: int


COLUMNS = tuple(one.name for one in fields(Replayed))
KEYS, SUMS = COLUMNS[:3], COLUMNS[3:]


def bands_of(drafted: Iterable[Price]) -> list[Band]:
    """Return prices as a replay keeps them."""
    return [
        Band(**{name: getattr(price, name) for name in Band.__struct_fields__}) for price in drafted
    ]


@transaction.atomic
def replay_day(
    day: date, bands: Sequence[Band], *, organization_id: str | None
) -> list[Replayed] | None:
    """Replay one UTC day, of one organization for its contract or of all for a list; None where the
    day was archived. Raises django.db.OperationalError where it takes longer than PATIENTLY says.
    """
    with connection.cursor() as cursor:
        cursor.execute(PATIENTLY)
        cursor.execute(REPLAY, _parameters(day, bands, organization_id))
        rows = [Replayed(*row[:3], *map(int, row[3:])) for row in cursor.fetchall()]
        # Asked afterwards: a day that goes in between counts as gone, not as empty.
        cursor.execute(IS_GONE, [day, partition_name(day)])
        return None if cursor.fetchone()[0] else rows


def _parameters(day: date, bands: Sequence[Band], organization_id: str | None) -> dict[str, Any]:
    start = datetime.combine(day, time(), UTC)
    return {
        "first_id": id_floor(start),
        "end_id": id_floor(start + DAY),
        "organization_id": organization_id,
        "prices": msgspec.json.encode(bands).decode(),
        "terms": _terms(start) if organization_id is None else "[]",
    }


def _terms(start: datetime) -> str:
    """Return the contracts of a day with their times as event ids. A draft contract is the newest
    of its organization and gives way to none."""
    end = start + DAY
    found = [
        {
            "organization_id": term.organization_id,
            "variant_id": term.variant_id,
            "tier": term.tier,
            "first_id": id_floor(term.starts_at),
            "end_id": id_floor(term.ends_at or end),
        }
        for term in prices.contract_terms(start, end)
    ]
    return msgspec.json.encode(found).decode()
