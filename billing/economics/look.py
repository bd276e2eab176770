"""One look at the margin: as close as the amount of usage allows within a page's patience."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from django.utils.translation import gettext_lazy as _

from billing.economics.margin import ONE_HOUR, Margin, margins
from billing.economics.margin_by_variant import Sold, allot_pools, request_count, used_by_variant
from billing.economics.replica_hours import Step, deployment_hours, hour_count
from billing.following.archive import dropped_days
from billing.metering.batch import AGE_MAX
from control.catalog.selectors import deployments

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

Basis = Literal["replica", "hour", "day"]
CLOSELY_MAX = 500_000
"""As many requests are looked at one by one, at about 5 s per million of them."""
HOURS_CLOSELY_MAX = 100_000
"""As many hours of replicas are looked at one by one, at about 20 s per million of them."""
BY_HOUR_MAX = timedelta(days=2)
"""Longer looks share by the day: an hour has a row per organization and variant."""
SHARED_BY: dict[Basis, "StrOrPromise"] = {
    "replica": _("by replica and hour, from each request"),
    "hour": _("by variant and hour, from hourly sums"),
    "day": _("by variant and day, from hourly sums"),
}


@dataclass(frozen=True, slots=True)
class Look:
    """The margin of every variant and organization, idle cost included, and how its costs were
    shared."""

    rows: tuple[Margin, ...]
    basis: Basis
    request_count: int
    is_archived: bool = False
    """Whether requests of some of these days are in files alone, and only sums are at hand."""

    @property
    def words(self) -> str:
        """How busy cost was shared."""
        return str(SHARED_BY[self.basis])


def look(start: datetime, end: datetime, *, now: datetime) -> Look:
    """Return the margin of [start, end), both full hours (UTC). Revenue, tokens and the whole cost
    are exact on every basis; the shares of busy cost are as close as `basis` says."""
    count = request_count(start, end)
    may_be_archived = start < now - AGE_MAX
    is_archived = may_be_archived and bool(dropped_days(start, end - ONE_HOUR))
    is_small = count <= CLOSELY_MAX and hour_count(start, end) <= HOURS_CLOSELY_MAX
    if is_small and not is_archived:
        return Look(tuple(margins(start, end)), "replica", count)
    step: Step = "hour" if end - start <= BY_HOUR_MAX else "day"
    return Look(tuple(margins_by_variant(start, end, step)), step, count, is_archived)


def margins_by_variant(start: datetime, end: datetime, step: Step) -> list[Margin]:
    """Return the margin of every variant and organization in [start, end) from rollups; the
    dearest to serve first."""
    sold = {
        each.id: Sold(each.variant.model_id, each.variant_id, each.dedicated_to_id)
        for each in deployments()
    }
    used = used_by_variant(start, end, step)
    return allot_pools(deployment_hours(start, end, step), used, sold, step)
