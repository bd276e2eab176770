"""Overview: the money, the month, the speed, and the next step for who has just come."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.http import HttpResponse
from django.utils import timezone

from billing.metering import selectors as metering
from billing.metering.sums import UsagePoint, UsageSums
from web.console.first_call import FirstCall
from web.console.names import Names, names_for
from web.console.page import Page, address, console_page
from web.console.usage.chart import Chart, kinds_chart
from web.console.views.requests import rows_of

DAYS = 14
LATEST = 6
MODELS = 6


@dataclass(frozen=True, slots=True)
class Kind:
    """One meter's tokens and its share of all, in percent of the bar's width."""

    meter: str
    tokens: int
    share: str


@dataclass(frozen=True, slots=True)
class ModelRow:
    """What one model took this month."""

    name: str
    url: str
    sums: UsageSums

    @property
    def tokens(self) -> int:
        """Input and output."""
        return self.sums.input_tokens + self.sums.output_tokens


@console_page("overview")
def overview(page: Page) -> HttpResponse:
    """What an organization sees first."""
    now = timezone.now().astimezone(UTC)
    names = names_for(page.organization)
    filters = filters_of(page)
    latest = metering.recent_events(page.organization, filters=filters, limit=LATEST)
    money = metering.overview(page.organization, now)
    today, month = (money.today, money.month) if not page.project else of_project(page, now)
    context = {
        "now": now,
        "days": DAYS,
        "money": money,
        "month": month,
        "today": today,
        "day": sums_since(page, hour_end(now) - timedelta(days=1), now),
        "chart": chart_of(page, now, filters) if latest else None,
        "kinds": kinds_of(month),
        "cached_share": share(month.cached_input_tokens, month.input_tokens),
        "models": models_of(page, now, filters, names),
        "latest": rows_of(page, latest, names),
        "first_call": FirstCall(page, names.models),
        **links(page, now),
    }
    return page.render("console/overview.html", context)


def filters_of(page: Page) -> metering.UsageFilters:
    """Return the chosen project as a filter."""
    return metering.UsageFilters(project_ids=(page.project.id,) if page.project else ())


def day_start(now: datetime) -> datetime:
    """Return the midnight before, in UTC."""
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


def month_start(now: datetime) -> datetime:
    """Return the first midnight of the month, in UTC."""
    return day_start(now).replace(day=1)


def hour_end(now: datetime) -> datetime:
    """Return the end of the hour: sums up to there need whole hours only."""
    return now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)


def of_project(page: Page, now: datetime) -> tuple[UsageSums, UsageSums]:
    """Return the sums of the day and of the month in the chosen project."""
    return sums_since(page, day_start(now), now), sums_since(page, month_start(now), now)


def sums_since(page: Page, start: datetime, now: datetime) -> UsageSums:
    """Return the sums since `start`."""
    return metering.usage_totals(page.organization, start, hour_end(now), filters=filters_of(page))


def chart_of(page: Page, now: datetime, filters: metering.UsageFilters) -> Chart:
    """Return the three kinds of tokens of the last days."""
    start, end = day_start(now) - timedelta(days=DAYS - 1), day_start(now) + timedelta(days=1)
    points: list[UsagePoint] = metering.usage_series(
        page.organization, start, end, "day", filters=filters
    )
    return kinds_chart(metering.bucket_starts(start, end, "day"), points, "day")


def kinds_of(sums: UsageSums) -> list[Kind]:
    """Return the three meters with their shares of the month's tokens."""
    tokens = {
        "input": sums.uncached_input_tokens,
        "cached_input": sums.cached_input_tokens,
        "output": sums.output_tokens,
    }
    whole = sum(tokens.values())
    return [Kind(m, number, f"{100 * share(number, whole):.2f}") for m, number in tokens.items()]


def share(part: int, whole: int) -> float:
    """Return `part` of `whole`, 0 of nothing."""
    return part / whole if whole else 0.0


def models_of(
    page: Page, now: datetime, filters: metering.UsageFilters, names: Names
) -> list[ModelRow]:
    """Return this month's usage by model, the dearest first."""
    groups = metering.usage_by_group(
        page.organization, month_start(now), hour_end(now), group_by=("model",), filters=filters
    )
    groups.sort(key=lambda group: -group.sums.charged_nanos)
    return [
        ModelRow(
            name=names.models.get(group.group[0], group.group[0]),
            url=page.url("usage", model=group.group[0]),
            sums=group.sums,
        )
        for group in groups[:MODELS]
    ]


def links(page: Page, now: datetime) -> dict[str, str]:
    """Return where the figures of the page are taken apart."""
    month = {"from": month_start(now).date().isoformat(), "to": now.date().isoformat()}
    project = page.project.id if page.project else ""
    usage = {"project": project, **month}
    return {
        "month_url": address(page.organization, "usage", **usage, metric="cost"),
        "by_model_url": address(page.organization, "usage", **usage, group="model"),
    }
