"""Questions about usage. The organization comes first; another's rows are never seen."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from billing.metering.models import UsageEvent
from billing.metering.sums import Overview, Receipt, UsageGroup, UsagePoint, UsageSums

if TYPE_CHECKING:
    from control.tenants.models import Organization

Bucket = Literal["minute", "hour", "day"]
Dimension = Literal["project", "key", "model", "variant", "tier", "endpoint"]


@dataclass(frozen=True, slots=True)
class UsageFilters:
    """Only usage of these; an empty tuple means any."""

    project_ids: tuple[str, ...] = ()
    key_ids: tuple[str, ...] = ()
    model_ids: tuple[str, ...] = ()
    variant_ids: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()


EVERYTHING = UsageFilters()


def bucket_starts(start: datetime, end: datetime, bucket: Bucket) -> list[datetime]: ...


def usage_series(
    organization: "Organization",
    start: datetime,
    end: datetime,
    bucket: Bucket,
    *,
    group_by: Sequence[Dimension] = (),
    filters: UsageFilters = EVERYTHING,
) -> list[UsagePoint]: ...


def usage_by_group(
    organization: "Organization",
    start: datetime,
    end: datetime,
    *,
    group_by: Sequence[Dimension],
    filters: UsageFilters = EVERYTHING,
) -> list[UsageGroup]: ...


def usage_totals(
    organization: "Organization",
    start: datetime,
    end: datetime,
    *,
    filters: UsageFilters = EVERYTHING,
) -> UsageSums: ...


def overview(organization: "Organization", now: datetime) -> Overview: ...


def recent_events(
    organization: "Organization",
    *,
    filters: UsageFilters = EVERYTHING,
    before: uuid.UUID | None = None,
    limit: int = 50,
) -> list[UsageEvent]: ...


def receipt(organization: "Organization", event_id: uuid.UUID) -> Receipt | None: ...
