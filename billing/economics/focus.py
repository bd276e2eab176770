"""Usage and cost in the FinOps FOCUS format, version 1.2 (focus.finops.org), from the hour rollups.

One row per organization, project, key, day, variant, tier, price and meter, of the days of the
books (`accounted_on`): those are never summed anew, and add up to the ledger. The charge period is
the UTC day on which the requests were received, the billing period the month they are booked in.

- BilledCost and EffectiveCost are what was charged, to the nano. ContractedCost and ListCost are
  unit price times quantity, as FOCUS wants them: above BilledCost by what was waived, beside it by
  less than a nano per request for rounding.
- What was waived has a row of its own per price: an Adjustment that costs nothing, with
  `x_WaivedCost`; rollups do not tell it by meter.
- ResourceId is the API key: deployments are not in the rollups.
- ListUnitPrice of usage under a contract is that of the list prices at the day's start.

Decimals are exact text, never floats.
"""

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from io import StringIO
from typing import Any, NamedTuple

from django.db import connection

from control.api.streaming import without_formula
from control.errors import InvalidValue
from control.pricing.models import Price
from control.pricing.selectors import schedules_in_force
from serving.contract.price import band_of

DAYS_MAX = 366
NANO_PLACES = 9
UNIT_PLACES = 6  # prices are per million tokens
PROVIDER = "Penstock"
DAY = timedelta(days=1)
MEDIUM = 2_000
"""Rows of rollups that become one chunk of the file."""

# One day of the books, summed by what a FOCUS row tells apart. Names are as they are now.
OF_DAY = """
SELECT rollup.organization_id, organization.name, caller.project_id, project.name,
    caller.key_id, key.name, rollup.day, supply.variant_id,
    coalesce(model.public_id || ':' || variant.precision, supply.variant_id), supply.tier,
    supply.price_id, price.input_tokens_min, price.input_nanos, price.cached_input_nanos,
    price.output_nanos, book.organization_id IS NOT NULL,
    sum(rollup.input_tokens - rollup.cached_input_tokens)::bigint,
    sum(rollup.cached_input_tokens)::bigint, sum(rollup.output_tokens)::bigint,
    sum(rollup.charged_input)::bigint, sum(rollup.charged_cached_input)::bigint,
    sum(rollup.charged_output)::bigint, sum(rollup.waived_nanos)::bigint
FROM (
    SELECT organization_id, caller_id, supply_id, (bucket_at AT TIME ZONE 'UTC')::date AS day,
        input_tokens, cached_input_tokens, output_tokens, input_nanos AS charged_input,
        cached_input_nanos AS charged_cached_input, output_nanos AS charged_output, waived_nanos
    FROM following_hour_rollup WHERE accounted_on = %(day)s
      AND (%(organization_id)s::text IS NULL OR organization_id = %(organization_id)s)
) AS rollup
JOIN metering_caller AS caller ON caller.id = rollup.caller_id
JOIN metering_supply AS supply ON supply.id = rollup.supply_id
LEFT JOIN organizations_organization AS organization ON organization.id = rollup.organization_id
LEFT JOIN organizations_project AS project ON project.id = caller.project_id
LEFT JOIN api_keys_api_key AS key ON key.id = caller.key_id
LEFT JOIN catalog_variant AS variant ON variant.id = supply.variant_id
LEFT JOIN catalog_model AS model ON model.id = variant.model_id
LEFT JOIN pricing_price AS price ON price.id = supply.price_id
LEFT JOIN pricing_price_book AS book ON book.id = price.book_id
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 ORDER BY 1, 3, 5, 7, 9, 10, 11
"""

Meter = str
METERS: tuple[Meter, ...] = ("input", "cached_input", "output")


class Sold(NamedTuple):
    """Usage of one day of the books as the statement tells it; nanos were charged, but for those
    waived. A price that is not known has no band and no meters."""

    organization_id: str
    organization: str | None
    project_id: str
    project: str | None
    key_id: str
    key: str | None
    day: date
    variant_id: str
    variant: str
    tier: str
    price_id: str
    input_tokens_min: int | None
    input_price: int | None
    cached_input_price: int | None
    output_price: int | None
    is_contract: bool
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    input_nanos: int
    cached_input_nanos: int
    output_nanos: int
    waived_nanos: int


@dataclass(frozen=True, slots=True)
class Days:
    """The days of the books to export, both included, of one organization or of all.

    Raises InvalidValue for a period that ends before it begins, or has over DAYS_MAX days.
    """

    first: date
    last: date
    organization_id: str | None = None

    def __post_init__(self) -> None:
        if self.last < self.first:
            raise InvalidValue("The period ends before it begins.", param="to")
        if (self.last - self.first).days >= DAYS_MAX:
            raise InvalidValue(f"An export takes at most {DAYS_MAX} days.", param="to")

    def __iter__(self) -> Iterator[date]:
        """Yield each day."""
        for number in range((self.last - self.first).days + 1):
            yield self.first + number * DAY


ListPrices = Callable[[date, str, str, int], Price | None]


def focus_csv(days: Days) -> Iterator[bytes]:
    """Yield the file, its header first. Each day is a query of its own: no transaction waits for
    a slow reader."""
    yield _csv([COLUMNS])
    for day in days:
        found = _sold(day, days.organization_id)
        listed = _list_prices()
        for start in range(0, len(found), MEDIUM):
            part = found[start : start + MEDIUM]
            rows = [row for sold in part for row in rows_of(sold, day, listed)]
            yield _csv([row.get(name, "") for name in COLUMNS] for row in rows)


def rows_of(sold: Sold, accounted_on: date, listed: ListPrices) -> Iterator[Mapping[str, str]]:
    """Yield a row for each meter that was used, and one for what was waived."""
    shared = _shared(sold, accounted_on)
    list_price = None
    if sold.is_contract and sold.input_tokens_min is not None:
        list_price = listed(sold.day, sold.tier, sold.variant_id, sold.input_tokens_min)
    for meter in METERS:
        tokens, nanos = getattr(sold, f"{meter}_tokens"), getattr(sold, f"{meter}_nanos")
        if tokens or nanos:
            own = getattr(sold, f"{meter}_price")
            over = getattr(list_price, f"{meter}_nanos", None) if sold.is_contract else own
            yield shared | _used(sold, meter, tokens, nanos) | _priced(tokens, nanos, own, over)
    if sold.waived_nanos:
        yield shared | _waived(sold)


def decimal(whole: int, places: int) -> str:
    """Return `whole` with its last `places` digits behind the point, exact and plain.

    Worked examples: 132,000 with 9 places is `0.000132`, -5 with 1 is `-0.5`, 30 with 1 is `3`.
    """
    head, tail = divmod(abs(whole), 10**places)
    digits = f"{tail:0{places}}".rstrip("0")
    return f"{'-' if whole < 0 else ''}{head}{'.' if digits else ''}{digits}"


def _shared(sold: Sold, accounted_on: date) -> dict[str, str]:
    begins = accounted_on.replace(day=1)
    return {
        "BillingAccountId": sold.organization_id,
        "BillingAccountName": _text(sold.organization or sold.organization_id),
        "BillingAccountType": "Organization",
        "BillingCurrency": "USD",
        "BillingPeriodStart": _moment(begins),
        "BillingPeriodEnd": _moment((begins + 32 * DAY).replace(day=1)),
        "ChargePeriodStart": _moment(sold.day),
        "ChargePeriodEnd": _moment(sold.day + DAY),
        "ChargeFrequency": "Usage-Based",
        "InvoiceIssuerName": PROVIDER,
        "ProviderName": PROVIDER,
        "PublisherName": PROVIDER,
        "ServiceCategory": "AI and Machine Learning",
        "ServiceSubcategory": "Generative AI",
        "ServiceName": "Inference",
        "SubAccountId": sold.project_id,
        "SubAccountName": _text(sold.project or sold.project_id),
        "SubAccountType": "Project",
        "ResourceId": sold.key_id,
        "ResourceName": _text(sold.key or sold.key_id),
        "ResourceType": "API key",
        "x_AccountedOn": accounted_on.isoformat(),
        "x_Variant": _text(sold.variant),
        "x_Tier": sold.tier,
        "x_PriceId": sold.price_id,
    }


def _used(sold: Sold, meter: Meter, tokens: int, nanos: int) -> dict[str, str]:
    words = f"{meter.replace('_', ' ')} tokens"
    floor = sold.input_tokens_min or 0
    band = f", requests from {floor:,} input tokens" if floor else ""
    return {
        "ChargeCategory": "Usage",
        # What a later day counts out, since the request turned out to have ended otherwise.
        "ChargeClass": "Correction" if tokens < 0 or nanos < 0 else "",
        "ChargeDescription": _text(f"{sold.variant} {sold.tier}: {words}{band}"),
        "ConsumedQuantity": str(tokens),
        "ConsumedUnit": "Tokens",
        "PricingCategory": "Standard",
        "PricingQuantity": decimal(tokens, UNIT_PLACES),
        "PricingUnit": "1000000 Tokens",
        "SkuId": f"{sold.variant_id}:{meter}",
        "SkuMeter": words.capitalize(),
        "SkuPriceId": f"{sold.variant_id}:{meter}:{sold.tier}:{floor}",
        "x_Meter": meter,
    }


def _priced(tokens: int, nanos: int, own: int | None, over: int | None) -> dict[str, str]:
    billed = decimal(nanos, NANO_PLACES)
    return {
        "BilledCost": billed,
        "EffectiveCost": billed,
        "ContractedUnitPrice": "" if own is None else decimal(own, NANO_PLACES),
        "ContractedCost": billed if own is None else _product(tokens, own),
        "ListUnitPrice": "" if over is None else decimal(over, NANO_PLACES),
        "ListCost": billed if over is None else _product(tokens, over),
    }


def _waived(sold: Sold) -> dict[str, str]:
    costs = dict.fromkeys(("BilledCost", "EffectiveCost", "ContractedCost", "ListCost"), "0")
    return {
        **costs,
        "ChargeCategory": "Adjustment",
        "ChargeDescription": _text(f"{sold.variant} {sold.tier}: waived, since we failed"),
        "x_WaivedCost": decimal(sold.waived_nanos, NANO_PLACES),
    }


COLUMNS = (
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingAccountType",
    "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory", "ChargeClass",
    "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart",
    "ConsumedQuantity", "ConsumedUnit", "ContractedCost", "ContractedUnitPrice", "EffectiveCost",
    "InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory", "PricingQuantity",
    "PricingUnit", "ProviderName", "PublisherName", "ResourceId", "ResourceName", "ResourceType",
    "ServiceCategory", "ServiceName", "ServiceSubcategory", "SkuId", "SkuMeter", "SkuPriceId",
    "SubAccountId", "SubAccountName", "SubAccountType",
    "x_AccountedOn", "x_Meter", "x_PriceId", "x_Tier", "x_Variant", "x_WaivedCost",
)  # fmt: skip
"""FOCUS 1.2's columns in its order, then ours."""


def _sold(day: date, organization_id: str | None) -> list[Sold]:
    with connection.cursor() as cursor:
        cursor.execute(OF_DAY, {"day": day, "organization_id": organization_id})
        return [Sold(*row) for row in cursor.fetchall()]


def _list_prices() -> ListPrices:
    """Return the list prices at the start of a day, asked for once per day and tier."""

    @cache
    def schedules(day: date, tier: str) -> Mapping[str, Any]:
        return schedules_in_force(None, datetime.combine(day, time(), UTC), tier=tier)

    def listed(day: date, tier: str, variant_id: str, input_tokens: int) -> Price | None:
        schedule = schedules(day, tier).get(variant_id)
        return band_of(schedule, input_tokens) if schedule else None

    return listed


def _product(tokens: int, price: int) -> str:
    return decimal(tokens * price, UNIT_PLACES + NANO_PLACES)


def _moment(day: date) -> str:
    return f"{day.isoformat()}T00:00:00Z"


def _text(words: str) -> str:
    return str(without_formula(words))


def _csv(rows: Any) -> bytes:
    file = StringIO()
    csv.writer(file).writerows(rows)
    return file.getvalue().encode()
