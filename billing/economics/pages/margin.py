"""The margin page: what customers paid beside what the replicas cost, idle time included."""

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from billing.economics.look import CLOSELY_MAX, Look, look
from billing.economics.pages.margin_query import DAYS_MAX, GROUPS, MarginQuery, parse_query
from billing.economics.pages.margin_rows import (
    MarginRow,
    chart_of,
    csv_of,
    hours_text,
    percent,
    rows_of,
    shown_rows,
    total_of,
)
from billing.economics.pages.names import Names, names
from billing.following.models import Cursor
from control.admin.base import OperatorPage
from control.api.streaming import whole_export

ROWS_MAX = 100
"""Rows of the table; the file has them all."""


class MarginPage(OperatorPage):
    """Margin per variant, model or organization over whole UTC days."""

    title = _("Margin")
    purpose = _(
        "Compares what customers were charged with what the replicas cost. A replica costs from"
        " its start to its end: its busy seconds are shared among the organizations that used it,"
        " by tokens; all other seconds are idle."
    )
    permission_required = "economics.view_enginelife"
    template_name = "economics/margin.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Show the page, or send its numbers as a file."""
        if request.GET.get("format") == "csv":
            return _file(request, parse_query(request.GET.dict(), timezone.now().date()))
        return super().get(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the numbers, in words."""
        today = timezone.now().date()
        query = parse_query(self.request.GET.dict(), today)
        found, rows, called = answer(query)
        total = total_of(rows)
        idle = total_of(row for row in rows if row.is_idle)
        return super().get_context_data(
            **kwargs,
            query=query,
            today=today,
            groups=GROUPS,
            group_label=GROUPS[query.by],
            days_max=DAYS_MAX,
            closely_max=f"{CLOSELY_MAX:,}",
            found=found,
            rows=[_shown(row, query) for row in shown_rows(rows, ROWS_MAX)],
            total=_shown(total, query),
            idle=idle,
            idle_percent=percent(idle.margin.cost_nanos, total.margin.cost_nanos),
            chart=chart_of(rows),
            variants=called.variants,
            filtered=_filter_words(query, called),
            unfiltered_url=_address(query, model="", variant=""),
            csv_url=_address(query, format="csv"),
            followed_at=Cursor.objects.filter(name="rollups").values_list("followed_at").first(),
        )


def answer(query: MarginQuery) -> tuple[Look, list[MarginRow], Names]:
    """Return a look, its rows and what they are called."""
    found = look(query.start, query.end, now=timezone.now())
    called = names(row.organization_id for row in found.rows if row.organization_id)
    return found, rows_of(found.rows, query, called), called


def _file(request: HttpRequest, query: MarginQuery) -> HttpResponseBase:
    def content() -> bytes:
        found, rows, _ = answer(query)
        return csv_of(rows, query, found.words)

    name = f"margin-{query.by}-{query.first}-{query.last}.csv"
    return whole_export(request, content, content_type="text/csv; charset=utf-8", name=name)


def _shown(row: MarginRow, query: MarginQuery) -> dict[str, Any]:
    margin = row.margin
    return {
        "label": row.label,
        "url": _behind(row, query),
        "is_idle": row.is_idle,
        "input": f"{margin.input_tokens:,}",
        "output": f"{margin.output_tokens:,}",
        "replica_hours": hours_text(margin.replica_seconds) if margin.replica_seconds else "",
        "revenue": row.revenue,
        "cost": row.cost,
        "margin": row.margin_left,
        "is_loss": margin.margin_nanos < 0,
        "percent": row.percent,
        "is_cost_known": margin.is_cost_known,
    }


def _behind(row: MarginRow, query: MarginQuery) -> str:
    """Where a row's figures come apart further."""
    if row.is_idle or not row.id:
        return ""
    if query.by == "organization":
        return f"{reverse('admin:metering_usageevent_changelist')}?{urlencode({'q': row.id})}"
    if query.by == "model":
        return _address(query, by="variant", model=row.id)
    return _address(query, by="organization", variant=row.id)


def _address(query: MarginQuery, **changes: str) -> str:
    return f"{reverse('admin:economics_margin')}?{urlencode(query.parameters(**changes))}"


def _filter_words(query: MarginQuery, called: Names) -> str:
    if query.variant:
        return called.variant(query.variant)
    return called.model(query.model) if query.model else ""
