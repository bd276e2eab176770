"""Revenue by model and month."""

from collections.abc import Sequence
from datetime import date
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from billing.cockpit.revenue import Revenue, model_names, revenue
from billing.economics.pages.margin_rows import Money
from billing.reading.exports import plain_dollars
from control.admin.base import OperatorPage
from control.api.streaming import csv_bytes, whole_export
from serving.contract.money import format_dollars

MONTHS_MAX = 12
MODELS_MAX = 6
"""Colours that can be told apart; the rest are others."""
INKS = ("model-1", "model-2", "model-3", "model-4", "model-5", "model-6", "idle")
CSV_HEADER = ("month", "model_id", "model", "charged_usd")


class RevenuePage(OperatorPage):
    """What each model earned by month, held against the ledger."""

    title = _("Revenue")
    purpose = _(
        "What customers were charged for each model by accounting month, summed from usage and"
        " compared with the revenue accounts of the ledger."
    )
    permission_required = "ledger.view_account"
    template_name = "cockpit/revenue.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Show the page, or send its numbers as a file."""
        if request.GET.get("format") == "csv":
            return whole_export(
                request, _csv, content_type="text/csv; charset=utf-8", name="revenue.csv"
            )
        return super().get(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the last months by model, and all months beside the ledger."""
        found, called = revenue(), model_names()
        months = found.months()[-MONTHS_MAX:]
        models = found.model_ids(months)
        return super().get_context_data(
            **kwargs,
            months=[f"{month:%Y-%m}" for month in months],
            is_cut=len(found.months()) > len(months),
            months_max=MONTHS_MAX,
            rows=[_row(found, month, models) for month in reversed(months)],
            models=[called.get(model, model) for model in models],
            chart=_chart(found, months, models, called),
            charged=Money(found.charged_nanos),
            taken_back=Money(sum(found.taken_back.values())),
            unposted=Money(found.unposted_nanos),
            posted=Money(found.posted_nanos),
            difference=Money(found.difference_nanos),
            csv_url=f"{reverse('admin:cockpit_revenue')}?format=csv",
        )


def _row(found: Revenue, month: date, models: Sequence[str]) -> dict[str, Any]:
    charged = [found.charged.get((month, model), 0) for model in models]
    taken = found.taken_back.get(month, 0)
    return {
        "month": f"{month:%Y-%m}",
        "charged": [Money(nanos) for nanos in charged],
        "taken_back": Money(taken),
        "total": Money(sum(charged) - taken),
    }


def _chart(
    found: Revenue, months: Sequence[date], models: Sequence[str], called: dict[str, str]
) -> dict[str, Any]:
    stacks = [(called.get(model, model), [model]) for model in models[:MODELS_MAX]]
    if rest := list(models[MODELS_MAX:]):
        words = ngettext("%(count)s other", "%(count)s others", len(rest))
        stacks.append((words % {"count": len(rest)}, rest))
    series = []
    for (label, its), ink in zip(stacks, INKS, strict=False):
        nanos = [sum(found.charged.get((month, one), 0) for one in its) for month in months]
        series.append(series_of(label, ink, "charged", nanos))
    totals = [
        sum(nanos for (month, _), nanos in found.charged.items() if month == one) for one in months
    ]
    return chart_of([f"{month:%Y-%m}" for month in months], series, totals)


def series_of(label: str, ink: str, stack: str, nanos: Sequence[int]) -> dict[str, Any]:
    """Return one colour of a chart."""
    return {
        "label": label,
        "ink": ink,
        "stack": stack,
        "values": [plain_dollars(value) for value in nanos],
        "shown": [format_dollars(value) for value in nanos],
    }


def chart_of(
    labels: Sequence[str], series: Sequence[dict[str, Any]], totals: Sequence[int]
) -> dict[str, Any]:
    """Return what `charts.js` draws."""
    return {
        "unit": "usd",
        "labels": labels,
        "titles": labels,
        "series": series,
        "totals": [
            gettext("Total %(amount)s") % {"amount": format_dollars(nanos)} for nanos in totals
        ],
    }


def _csv() -> bytes:
    found, called = revenue(), model_names()
    rows = [
        (f"{month:%Y-%m}", model, called.get(model, model), plain_dollars(nanos))
        for (month, model), nanos in sorted(found.charged.items())
    ]
    return csv_bytes([CSV_HEADER, *rows])
