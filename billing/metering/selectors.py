"""Questions about usage. The organization comes first; another's rows are never seen."""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from django.contrib.postgres.fields import ArrayField
from django.db.models import Aggregate, BigIntegerField, F, QuerySet, Sum
from django.db.models.functions import TruncDay

from billing.credit import selectors as credit
from billing.credit.limits import available_nanos
from billing.metering.latency import BUCKET_COUNT
from billing.metering.models import HourRollup, MinuteRollup, UsageEvent
from billing.metering.sums import Overview, Receipt, UsageGroup, UsagePoint, UsageSums
from billing.rating.rate import lines
from control.catalog.models import Model, Variant
from control.errors import NotFound
from control.prices.models import Price
from control.tenants.models import Organization

Bucket = Literal["minute", "hour", "day"]
Source = type[HourRollup] | type[MinuteRollup]
Dimension = Literal["project", "key", "model", "variant", "tier", "endpoint"]

WIDTH = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
}
COLUMN = {
    "project": "project_id",
    "key": "key_id",
    "model": "model_id",
    "variant": "variant_id",
    "tier": "tier",
    "endpoint": "endpoint",
}


class SumCounts(Aggregate):
    """Adds arrays of TTFT counts, place by place."""

    template = "ARRAY[{}]".format(
        ", ".join(
            f"sum((%(expressions)s)[{place}])::bigint" for place in range(1, BUCKET_COUNT + 1)
        )
    )
    output_field = ArrayField(BigIntegerField())


SUMS: dict[str, Aggregate] = {
    f"sum_{one.name}": SumCounts("ttft_counts") if one.name == "ttft_counts" else Sum(one.name)
    for one in fields(UsageSums)
}


@dataclass(frozen=True, slots=True)
class UsageFilters:
    """Only usage of these; an empty tuple means any."""

    project_ids: tuple[str, ...] = ()
    key_ids: tuple[str, ...] = ()
    model_ids: tuple[str, ...] = ()
    variant_ids: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()

    def as_query(self) -> dict[str, tuple[str, ...]]:
        """Return the filter as keyword arguments of a query."""
        wanted = {
            "project_id__in": self.project_ids,
            "key_id__in": self.key_ids,
            "model_id__in": self.model_ids,
            "variant_id__in": self.variant_ids,
            "tier__in": self.tiers,
            "endpoint__in": self.endpoints,
        }
        return {name: values for name, values in wanted.items() if values}


EVERYTHING = UsageFilters()


def bucket_starts(start: datetime, end: datetime, bucket: Bucket) -> list[datetime]:
    """Return the UTC beginnings of all buckets that touch [start, end), empty ones too."""
    first = floor(start, bucket)
    count = max(-(-(end - first) // WIDTH[bucket]), 0)
    return [first + WIDTH[bucket] * step for step in range(count)]


def floor(moment: datetime, bucket: Bucket) -> datetime:
    """Return the beginning of the UTC bucket that `moment` lies in."""
    moment = moment.astimezone(UTC).replace(second=0, microsecond=0)
    if bucket != "minute":
        moment = moment.replace(minute=0)
    return moment.replace(hour=0) if bucket == "day" else moment


def spans(start: datetime, end: datetime) -> list[tuple[Source, datetime, datetime]]:
    """Return the rollups to read for [start, end): whole hours, and minutes at the edges."""
    first = floor(start + WIDTH["hour"] - timedelta.resolution, "hour")
    last = floor(end, "hour")
    if first >= last:
        return [(MinuteRollup, start, end)]
    parts: list[tuple[Source, datetime, datetime]] = [
        (MinuteRollup, start, first),
        (HourRollup, first, last),
        (MinuteRollup, last, end),
    ]
    return [part for part in parts if part[1] < part[2]]


def usage_series(
    organization: Organization,
    start: datetime,
    end: datetime,
    bucket: Bucket,
    *,
    group_by: Sequence[Dimension] = (),
    filters: UsageFilters = EVERYTHING,
) -> list[UsagePoint]:
    """Return the usage in all buckets that touch [start, end), in order of time, then group.

    Buckets without usage are left out; `bucket_starts` names them all.
    """
    source: Source = MinuteRollup if bucket == "minute" else HourRollup
    moment = TruncDay("bucket_at", tzinfo=UTC) if bucket == "day" else F("bucket_at")
    columns = [COLUMN[dimension] for dimension in group_by]
    rows = (
        _usage(source, organization, floor(start, bucket), end, filters)
        .annotate(moment=moment)
        .values("moment", *columns)
        .annotate(**SUMS)
        .order_by("moment", *columns)
    )
    return [
        UsagePoint(row["moment"], tuple(row[column] for column in columns), _sums(row))
        for row in rows
    ]


def usage_by_group(
    organization: Organization,
    start: datetime,
    end: datetime,
    *,
    group_by: Sequence[Dimension],
    filters: UsageFilters = EVERYTHING,
) -> list[UsageGroup]:
    """Return the usage of each group over [start, end), exact to the minute, the dearest first."""
    columns = [COLUMN[dimension] for dimension in group_by]
    found: dict[tuple[str, ...], UsageSums] = {}
    for source, first, last in spans(start, end):
        rows = _usage(source, organization, first, last, filters).values(*columns)
        for row in rows.annotate(**SUMS).order_by():
            group = tuple(row[column] for column in columns)
            found[group] = found.get(group, UsageSums()) + _sums(row)
    groups = [UsageGroup(group, sums) for group, sums in found.items()]
    return sorted(groups, key=lambda one: (-one.sums.charged_nanos, one.group))


def usage_totals(
    organization: Organization,
    start: datetime,
    end: datetime,
    *,
    filters: UsageFilters = EVERYTHING,
) -> UsageSums:
    """Return the sums over [start, end), exact to the minute."""
    sums = UsageSums()
    for source, first, last in spans(start, end):
        sums += _sums(_usage(source, organization, first, last, filters).aggregate(**SUMS))
    return sums


def overview(organization: Organization, now: datetime) -> Overview:
    """Return the organization's money and its usage of this UTC day and month."""
    today, end = floor(now, "day"), floor(now, "minute") + WIDTH["minute"]
    return Overview(
        balance_nanos=credit.balance(organization, now),
        held_nanos=credit.held_nanos(organization.pk),
        available_nanos=available_nanos(organization.pk, now),
        today=usage_totals(organization, today, end),
        month=usage_totals(organization, today.replace(day=1), end),
    )


def recent_events(
    organization: Organization,
    *,
    filters: UsageFilters = EVERYTHING,
    before: uuid.UUID | None = None,
    limit: int = 50,
) -> list[UsageEvent]:
    """Return the newest events, or those older than `before`: the last id of the page above."""
    mine = UsageEvent.objects.filter(organization_id=organization.pk, **filters.as_query())
    if before is not None:
        mine = mine.filter(event_id__lt=before)
    return list(mine.order_by("-event_id")[:limit])


def receipt(organization: Organization, event_id: uuid.UUID) -> Receipt:
    """Return why a request cost what it cost. Raises NotFound."""
    event = UsageEvent.objects.filter(organization_id=organization.pk, event_id=event_id).first()
    if event is None:
        raise NotFound("There is no such request.")
    price = prices_by_id({event.price_id})[event.price_id]
    return Receipt(event=event, price=price, lines=lines(event, price))


def prices_by_id(price_ids: Iterable[str]) -> dict[str, Price]:
    """Return those of the prices that were published; they never change."""
    published = Price.objects.filter(id__in=set(price_ids), book__published_at__isnull=False)
    return {price.id: price for price in published}


def model_names(model_ids: Iterable[str]) -> dict[str, str]:
    """Return the public names of models by their ids."""
    return dict(Model.objects.filter(id__in=set(model_ids)).values_list("id", "public_id"))


def model_ids(names: Iterable[str]) -> tuple[str, ...]:
    """Return the ids of the models with these public names."""
    return tuple(Model.objects.filter(public_id__in=set(names)).values_list("id", flat=True))


def variant_names(variant_ids: Iterable[str]) -> dict[str, str]:
    """Return the names of variants, such as `penstock-demo:int8`, by their ids."""
    found = Variant.objects.select_related("model").filter(id__in=set(variant_ids))
    return {variant.id: str(variant) for variant in found}


def _usage(
    source: Source,
    organization: Organization,
    start: datetime,
    end: datetime,
    filters: UsageFilters,
) -> "QuerySet[HourRollup] | QuerySet[MinuteRollup]":
    return source.objects.filter(
        organization_id=organization.pk,
        bucket_at__gte=start,
        bucket_at__lt=end,
        **filters.as_query(),
    )


def _sums(row: dict[str, Any]) -> UsageSums:
    values = {name.removeprefix("sum_"): row[name] for name in SUMS}
    if values["request_count"] is None:
        return UsageSums()
    return UsageSums(**values | {"ttft_counts": tuple(values["ttft_counts"])})
