"""Overview: balance, usage of the month, latency, and the next step for new organizations."""

from dataclasses import dataclass
from datetime import UTC, datetime

from django.http import HttpResponse
from django.utils import timezone

from billing.reading import selectors as reading
from billing.reading.buckets import WIDTH, bucket_starts, floor
from billing.reading.sums import UsageGroup, UsagePoint, UsageSums
from web.console.base import PageContext, address, console_page
from web.console.binding_limit import binding_limit_view
from web.console.code_samples import CodeSamples
from web.console.labels import IdLabels
from web.console.past_due import notice_of
from web.console.requests import rows_of
from web.console.usage.chart import Chart, kinds_chart

MODELS = 6


@dataclass(frozen=True, slots=True)
class Kind:
    """One meter's tokens and their share of all, in percent."""

    meter: str
    tokens: int
    share: str


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model's usage of this month."""

    name: str
    url: str
    sums: UsageSums

    @property
    def tokens(self) -> int:
        """Input and output tokens."""
        return self.sums.input_tokens + self.sums.output_tokens


@console_page("overview")
def overview(page: PageContext) -> HttpResponse:
    """Show the first page of an organization."""
    now = timezone.now().astimezone(UTC)
    names = IdLabels(page)
    seen = reading.overview(
        page.organization, now, project=page.project, with_money=page.may_see_money
    )
    context = {
        "now": now,
        "notice": notice_of(page, now),
        "days": reading.OVERVIEW_DAYS,
        "seen": seen,
        "binding": binding_limit_view(seen.binding_limit),
        "chart": chart_of(seen.days, now) if seen.latest else None,
        "kinds": kinds_of(seen.month),
        "cached_share": share(seen.month.cached_input_tokens, seen.month.input_tokens),
        "models": models_of(page, seen.models, names),
        "latest": rows_of(page, seen.latest, names),
        "first_call": CodeSamples(page, names),
        **links(page, now),
    }
    return page.render("console/overview.html", context)


def chart_of(days: list[UsagePoint], now: datetime) -> Chart:
    """Return the chart of tokens by kind of the last days."""
    end = floor(now, "day") + WIDTH["day"]
    start = end - WIDTH["day"] * reading.OVERVIEW_DAYS
    return kinds_chart(bucket_starts(start, end, "day"), days, "day")


def kinds_of(sums: UsageSums) -> list[Kind]:
    """Return the meters with their shares of the month's tokens."""
    tokens = {
        "input": sums.uncached_input_tokens,
        "cached_input": sums.cached_input_tokens,
        "output": sums.output_tokens,
    }
    whole = sum(tokens.values())
    return [Kind(m, number, f"{100 * share(number, whole):.2f}") for m, number in tokens.items()]


def share(part: int, whole: int) -> float:
    """Return `part / whole`, or 0 if `whole` is 0."""
    return part / whole if whole else 0.0


def models_of(page: PageContext, groups: list[UsageGroup], names: IdLabels) -> list[ModelRow]:
    """Return the models with the highest cost this month."""
    return [
        ModelRow(
            name=names.models.get(group.group[0], group.group[0]),
            url=page.url("usage", model=group.group[0]),
            sums=group.sums,
        )
        for group in groups[:MODELS]
    ]


def links(page: PageContext, now: datetime) -> dict[str, str]:
    """Return the URLs of the pages behind the figures."""
    month = {"from": f"{now:%Y-%m-01}", "to": f"{now:%Y-%m-%d}"}
    filters = {"project": page.project.id if page.project else "", **month}
    return {
        "month_url": address(page.organization, "usage", **filters, metric="cost"),
        "by_model_url": address(page.organization, "usage", **filters, group="model"),
        "month_requests_url": address(page.organization, "requests", **filters),
    }
