"""Usage: the query in the URL, shown as a chart, a table and a CSV file."""

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.reading import selectors as reading
from billing.reading.buckets import bucket_starts
from billing.reading.sums import UsagePoint, UsageSums
from control.api.streaming import whole_export
from web.console.base import PageContext, address, console_page
from web.console.code_samples import CodeSamples
from web.console.filters import Select, select
from web.console.labels import IdLabels
from web.console.usage.chart import Chart, kinds_chart, metric_chart
from web.console.usage.query import GROUPS, METRICS, By, Group, Metric, UsageQuery, parse_query
from web.console.usage.table import ROWS_MAX, csv_text, rows_of

BYS = {"day": _("Day"), "hour": _("Hour")}
TITLES: dict[tuple[Metric, By], Promise] = {
    ("tokens", "day"): _("Tokens per day"),
    ("tokens", "hour"): _("Tokens per hour"),
    ("cost", "day"): _("Spend per day"),
    ("cost", "hour"): _("Spend per hour"),
    ("requests", "day"): _("Requests per day"),
    ("requests", "hour"): _("Requests per hour"),
}
GROUPED_TITLES: dict[Group, Promise] = {
    "model": _("%(title)s, by model"),
    "variant": _("%(title)s, by variant"),
    "key": _("%(title)s, by API key"),
    "project": _("%(title)s, by project"),
}


@console_page("usage")
def usage(page: PageContext) -> HttpResponse:
    """Show usage and its cost."""
    query = query_of(page)
    names = IdLabels(page)
    points = points_of(page, query)
    rows = Paginator(rows_of(points, names.of(query.group)), ROWS_MAX)
    shown = rows.get_page(page.request.GET.get("page"))
    context = {
        "query": query,
        "today": timezone.now().date(),
        "totals": sum((point.sums for point in points), UsageSums()),
        "rows": shown,
        "chart": chart_of(query, points, names),
        "chart_title": title_of(query),
        "group_label": GROUPS[query.group] if query.group else "",
        "selects": selects(query, names),
        "filtered": bool(query.model or query.key or query.project),
        **links(page, query, shown.number),
        "first_call": CodeSamples(page, names),
    }
    return page.render("console/usage.html", context)


@console_page("usage")
def usage_csv(page: PageContext) -> HttpResponseBase:
    """Export all rows of the table as CSV."""
    query = query_of(page)
    name = f"usage-{page.organization.id}-{query.first}-{query.last}.csv"

    def content() -> bytes:
        rows = rows_of(points_of(page, query), IdLabels(page).of(query.group))
        return csv_text(rows, with_money=page.may_see_money)

    return whole_export(
        page.request,
        content,
        content_type="text/csv; charset=utf-8",
        name=name,
        organization_id=page.organization.id,
    )


def points_of(page: PageContext, query: UsageQuery) -> list[UsagePoint]:
    """Return the points of the chart and the table."""
    return reading.usage_series(
        page.organization,
        query.start,
        query.end,
        query.by,
        group_by=(query.group,) if query.group else (),
        filters=query.filters,
        with_money=page.may_see_money,
    )


def query_of(page: PageContext) -> UsageQuery:
    """Return the query in the URL."""
    return parse_query(page.request.GET, timezone.now().date(), metrics=metrics_of(page))


def metrics_of(page: PageContext) -> dict[Metric, Promise]:
    """Return the metrics that the member may see."""
    return {name: label for name, label in METRICS.items() if name != "cost" or page.may_see_money}


def chart_of(query: UsageQuery, points: list[UsagePoint], names: IdLabels) -> Chart:
    """Return the chart: kinds of tokens if they are not grouped, otherwise one colour a group."""
    starts = bucket_starts(query.start, query.end, query.by)
    if query.metric == "tokens" and not query.group:
        return kinds_chart(starts, points, query.by)
    return metric_chart(starts, points, query.by, query.metric, names.of(query.group))


def title_of(query: UsageQuery) -> str:
    """Return the chart's title."""
    title = str(TITLES[query.metric, query.by])
    return str(GROUPED_TITLES[query.group]) % {"title": title} if query.group else title


def selects(query: UsageQuery, names: IdLabels) -> list[Select]:
    """Return the drop-downs of the page."""
    return [
        select("by", gettext("Per"), query.by, BYS),
        select("group", gettext("Group by"), query.group, GROUPS),
        select("model", gettext("Model"), query.model, names.models, gettext("All models")),
        select("key", gettext("API key"), query.key, names.keys, gettext("All keys")),
        select(
            "project", gettext("Project"), query.project, names.projects, gettext("All projects")
        ),
    ]


def links(page: PageContext, query: UsageQuery, number: int) -> dict[str, object]:
    """Return the URLs of the export and of related pages."""

    def link(section: str = "usage", **changes: str) -> str:
        return address(page.organization, section, **query.parameters(**changes))

    return {
        "csv_url": link("usage_csv"),
        "newer_url": link(page=str(number - 1)),
        "older_url": link(page=str(number + 1)),
        "requests_url": address(
            page.organization,
            "requests",
            model=query.model,
            key=query.key,
            project=query.project,
            **{"from": query.first.isoformat(), "to": query.last.isoformat()},
        ),
        "metrics": [
            {"label": label, "url": link(metric=metric), "is_current": metric == query.metric}
            for metric, label in metrics_of(page).items()
        ],
    }
