"""Requests as files: CSV and JSON Lines, streamed a page of events at a time.

`input_tokens` includes `cached_input_tokens`, here as in the API and the console. Money is exact:
whole nanos, and dollars as text.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from billing.reading import selectors
from billing.reading.filters import EVERYTHING, UsageFilters
from billing.reading.sums import MONEY, Usage
from control.api.streaming import csv_bytes
from control.organizations.models import Organization
from serving.contract.money import exact_dollars

COLUMNS = (
    "received_at",
    "request_id",
    "project_id",
    "api_key_id",
    "model",
    "service_tier",
    "endpoint",
    "outcome",
    "streamed",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "reasoning_tokens",
    "price_id",
    "input_nanos",
    "cached_input_nanos",
    "output_nanos",
    "charged_nanos",
    "charged_usd",
    "waived_nanos",
    "queue_seconds",
    "ttft_seconds",
    "total_seconds",
    "client_request_id",
)
"""What a request is in a file, in this order. The meters' nanos add up to what was charged, or to
what was waived."""
MONEY_COLUMNS = frozenset({*MONEY, "charged_nanos", "charged_usd"})
"""What is left out of the files of who may not see money."""


def csv_pages(
    organization: Organization,
    start: datetime,
    end: datetime,
    *,
    filters: UsageFilters = EVERYTHING,
    with_money: bool = True,
) -> Iterator[bytes]:
    """Yield the requests of [start, end) as CSV (RFC 4180), oldest first, its header first."""
    yield csv_bytes([[name for name in COLUMNS if with_money or name not in MONEY_COLUMNS]])
    for records in _records(organization, start, end, filters, with_money):
        yield csv_bytes(record.values() for record in records)


def jsonl_pages(
    organization: Organization,
    start: datetime,
    end: datetime,
    *,
    filters: UsageFilters = EVERYTHING,
    with_money: bool = True,
) -> Iterator[bytes]:
    """Yield the requests of [start, end) as JSON Lines, oldest first."""
    for records in _records(organization, start, end, filters, with_money):
        yield msgspec.json.Encoder().encode_lines(records)


def _records(
    organization: Organization,
    start: datetime,
    end: datetime,
    filters: UsageFilters,
    with_money: bool,
) -> Iterator[list[dict[str, Any]]]:
    names, left_out = selectors.variant_names(), frozenset() if with_money else MONEY_COLUMNS
    pages = selectors.event_pages(organization, start, end, filters=filters, with_money=with_money)
    for page in pages:
        records = [record(event, names) for event in page]
        yield [{k: v for k, v in one.items() if k not in left_out} for one in records]


def record(event: Usage, names: Mapping[str, str]) -> dict[str, Any]:
    """Return one request under the names of `COLUMNS`."""
    caller, supply = event.caller, event.supply
    values: Sequence[Any] = (
        utc_text(event.received_at),
        str(event.event_id),
        caller.project_id,
        caller.key_id,
        names.get(supply.variant_id, supply.variant_id),
        supply.tier,
        supply.endpoint,
        event.outcome,
        event.streamed,
        event.input_tokens,
        event.cached_input_tokens,
        event.output_tokens,
        event.reasoning_tokens,
        supply.price_id,
        event.input_nanos,
        event.cached_input_nanos,
        event.output_nanos,
        event.charged_nanos,
        plain_dollars(event.charged_nanos),
        event.waived_nanos,
        event.queue_seconds,
        event.ttft_seconds,
        event.total_seconds,
        event.client_request_id,
    )
    return dict(zip(COLUMNS, values, strict=True))


def plain_dollars(nanos: int) -> str:
    """Return exact dollars as a plain number, for machines."""
    return exact_dollars(nanos).replace("$", "").replace(",", "")


def utc_text(moment: datetime) -> str:
    """Return a UTC moment to the millisecond, as ISO 8601."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
