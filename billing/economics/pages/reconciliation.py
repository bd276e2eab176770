"""The reconciliation page: what each engine counted beside what was recorded, hour by hour."""

from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Paginator
from django.db.models import Count, Q, Sum
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.economics.judging import full_hour
from billing.economics.models import Judgement
from billing.economics.pages.names import deployment_names
from billing.economics.pages.reconciliation_query import (
    ReconciliationQuery,
    judged_hours,
    judgements,
    last_judged,
    parse_query,
)
from billing.economics.pages.reconciliation_rows import JudgedRow, csv_pages
from billing.economics.reconciliation import ONE_HOUR, SETTLED_AFTER
from control.admin.base import OperatorPage
from control.api.streaming import whole_export

ROWS_MAX = 50
"""Rows on one page of the table."""
SUMMED = (
    "engine_input_tokens",
    "engine_output_tokens",
    "event_input_tokens",
    "event_output_tokens",
)


class ReconciliationPage(OperatorPage):
    """Judged hours of up to a day, filtered by deployment and replica."""

    title = _("Reconciliation")
    purpose = _(
        "Compares what each engine counted with what was recorded, per replica and hour. Known"
        " reasons explain a difference up to a tolerance; what is left raises an alarm."
    )
    permission_required = "economics.view_enginelife"
    template_name = "economics/reconciliation.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Show the page, or send its rows as a file."""
        if request.GET.get("format") == "csv":
            return _file(request, self._query())
        return super().get(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the rows, in words."""
        now = timezone.now()
        query = self._query()
        found = judgements(query)
        called = deployment_names()
        page = Paginator(found, ROWS_MAX).get_page(self.request.GET.get("page"))
        sums = found.aggregate(
            *(Sum(name, default=0) for name in SUMMED),
            row_count=Count("pk"),
            alarm_count=Count("pk", filter=Q(is_alarming=True)),
        )
        return super().get_context_data(
            **kwargs,
            query=query,
            today=now.date(),
            hours=range(25),
            deployments=called,
            sums={name: f"{figure:,}" for name, figure in sums.items()},
            has_alarms=sums["alarm_count"] > 0,
            rows=[row_of(one, called) for one in page],
            page=page,
            last_judged=last_judged(),
            waiting=waiting_words(query, now),
            csv_url=_address(query, format="csv"),
            alarms_url=_address(query, alarms="" if query.is_alarms_only else "1"),
            newer_url=_address(query, page=str(page.number - 1)),
            older_url=_address(query, page=str(page.number + 1)),
        )

    def _query(self) -> ReconciliationQuery:
        newest = last_judged() or timezone.now()
        return parse_query(self.request.GET.dict(), newest.date())


def row_of(one: Judgement, called: dict[str, str]) -> JudgedRow:
    """Return a judgement with its deployment's name."""
    return JudgedRow(one, called.get(one.deployment_id, one.deployment_id))


def waiting_words(query: ReconciliationQuery, now: datetime) -> str:
    """Return which of the hours asked for nobody judged, and why; empty where all are."""
    judged = judged_hours(query)
    settled_until = full_hour(now - SETTLED_AFTER)
    hours = (query.start + ONE_HOUR * count for count in range(query.to_hour - query.from_hour))
    over = [hour for hour in hours if hour < now and hour not in judged]
    late = [f"{hour:%H:%M}" for hour in over if hour < settled_until]
    early = [f"{hour:%H:%M}" for hour in over if hour >= settled_until]
    words = []
    if late:
        words.append(
            gettext(
                "Not reconciled: %(hours)s. Hours before the first sample never are; others are"
                " reconciled within the hour, up to two days back."
            )
            % {"hours": ", ".join(late)}
        )
    if early:
        words.append(
            gettext(
                "Not reconciled yet: %(hours)s. An hour is reconciled 15 minutes after its end."
            )
            % {"hours": ", ".join(early)}
        )
    return " ".join(words)


def _file(request: HttpRequest, query: ReconciliationQuery) -> HttpResponseBase:
    def content() -> bytes:
        called = deployment_names()
        return b"".join(csv_pages(row_of(one, called) for one in judgements(query)))

    name = f"reconciliation-{query.day}.csv"
    return whole_export(request, content, content_type="text/csv; charset=utf-8", name=name)


def _address(query: ReconciliationQuery, **changes: str) -> str:
    parameters = query.parameters(**changes)
    return f"{reverse('admin:economics_reconciliation')}?{urlencode(parameters)}"
