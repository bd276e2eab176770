"""Questions about budgets and alerts, organization first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Min, QuerySet, Sum

from billing.alerts.defaults import LOW_RUNWAY_DAYS, PACE_DAYS, PERCENTS, UNUSUAL_FACTOR
from billing.alerts.models import Alert, AlertSettings, DaySpend, Thresholds
from billing.credit.credits import forecast, open_credit
from billing.credit.models import Budget
from billing.credit.selectors import budget, budgets, key_at, spent_percent
from billing.following.spent import spent_in
from control.limits import spending as limits
from control.limits.spending import Owner, SpendingLimitRow
from control.organizations.models import Organization
from serving.contract.budget import period_end, period_start


@dataclass(frozen=True, slots=True)
class Standing:
    """A limit of spending and how its running period stands."""

    limit: SpendingLimitRow
    spent_nanos: int
    held_nanos: int
    starts_at: datetime
    renews_at: datetime
    alert_percents: list[int]

    @property
    def percent(self) -> int:
        """How much of the limit is spent, in whole percents, rounded down; 100 of none."""
        return spent_percent(self.spent_nanos, self.limit.limit_nanos)

    @property
    def left_nanos(self) -> int:
        """What may still be spent, never below zero."""
        return max(self.limit.limit_nanos - self.spent_nanos, 0)


def standings(
    organization: Organization, now: datetime, *, among: Iterable[Owner] | None = None
) -> list[Standing]:
    """Return every limit of an organization, or of some of its owners, with how it stands."""
    return standings_of(organization, limits.spending_limits(organization, among), now)


def standing(organization: Organization, budget_id: str, now: datetime) -> Standing:
    """Return one limit with how it stands. Raises ObjectNotFound."""
    [found] = standings_of(organization, [limits.spending_limit(organization, budget_id)], now)
    return found


def spent_nanos(organization: Organization, budget_id: str, now: datetime) -> int:
    """Return what was spent in the running period of a limit, whether or not it is set yet."""
    row = budget(budget_id, now)
    if row is not None:
        return row.posted_nanos
    key = key_at(budget_id, now)
    return spent_in([key], [organization.id])[key]


def alert_settings(organization: Organization) -> AlertSettings:
    """Return what an organization chose to be told of, or the defaults."""
    chosen = AlertSettings.objects.filter(organization_id=organization.id).first()
    return chosen or AlertSettings(
        organization_id=organization.id,
        low_runway_days=LOW_RUNWAY_DAYS,
        unusual_factor=UNUSUAL_FACTOR,
    )


def alerts(organization: Organization) -> QuerySet[Alert]:
    """Return what an organization was told, the newest first."""
    told = Alert.objects.filter(organization_id=organization.id, is_told=True)
    return told.order_by("-created_at", "-id")


def nanos_per_day(organization: Organization, now: datetime) -> int:
    """Return what a day takes at the last week's pace; of less than a week, at that."""
    since = now.date() - timedelta(days=PACE_DAYS - 1)
    week = DaySpend.objects.filter(
        organization_id=organization.id, day__gte=since, day__lte=now.date()
    ).aggregate(nanos=Sum("nanos"), first=Min("day"))
    if not week["nanos"]:
        return 0
    return int(week["nanos"]) // ((now.date() - week["first"]).days + 1)


def runway_days(organization_id: str, nanos_per_day: int, now: datetime) -> int | None:
    """Return for how many whole days credit lasts at a pace, before it expires; None where nothing
    is spent."""
    return forecast(open_credit([organization_id], now)[organization_id], nanos_per_day, now).days


def standings_of(
    organization: Organization, found: Sequence[SpendingLimitRow], now: datetime
) -> list[Standing]:
    """Return how some limits of an organization stand, in their order."""
    names = [one.budget_id for one in found]
    running = budgets(organization, now).filter(budget_id__in=names)
    rows = {row.budget_id: row for row in running}
    chosen = _percents(organization, names)
    return [
        _standing(one, rows.get(one.budget_id), chosen.get(one.budget_id, list(PERCENTS)), now)
        for one in found
    ]


def _percents(organization: Organization, budget_ids: Sequence[str]) -> dict[str, list[int]]:
    """Return the percentages of budgets for which others than the usual ones were chosen."""
    chosen = Thresholds.objects.filter(organization_id=organization.id, budget_id__in=budget_ids)
    return dict(chosen.values_list("budget_id", "percents"))


def _standing(
    limit: SpendingLimitRow, row: Budget | None, percents: list[int], now: datetime
) -> Standing:
    starts_at = period_start(limit.budget_id, now)
    return Standing(
        limit=limit,
        spent_nanos=row.posted_nanos if row else 0,
        held_nanos=row.pending_nanos if row else 0,
        starts_at=starts_at,
        renews_at=period_end(limit.budget_id, starts_at) or starts_at,
        alert_percents=percents,
    )
