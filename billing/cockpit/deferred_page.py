"""Deferred credit: what was paid or given ahead, and how long ago."""

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.cockpit.deferred import KINDS, WORDS, Deferred, Holder, deferred, holders
from billing.cockpit.owed_page import statement_url
from billing.cockpit.revenue_page import chart_of, series_of
from billing.economics.pages.margin_rows import Money
from billing.reading.exports import plain_dollars
from control.admin.base import OperatorPage
from control.api.streaming import csv_bytes, whole_export

INKS = {"prepaid": "revenue", "promotional": "idle"}
NAMES = {"prepaid": _("Prepaid"), "promotional": _("Promotional")}
CSV_HEADER = ("as_of_utc_day", "kind", "age", "grants", "unspent_usd", "expiring_30_days_usd")


class DeferredPage(OperatorPage):
    """Unspent credit by age."""

    title = _("Deferred credit")
    purpose = _(
        "Credit that customers have not used yet, by how long ago it was granted. Prepaid credit is"
        " money received but not earned yet; promotional credit was given."
    )
    permission_required = "ledger.view_account"
    template_name = "cockpit/deferred.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Show the page, or send its numbers as a file."""
        if request.GET.get("format") == "csv":
            return _file(request)
        return super().get(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the ages, who holds the most, and the accounts beside them."""
        found = deferred(timezone.now())
        return super().get_context_data(
            **kwargs,
            rows=[_row(found, place) for place in range(len(WORDS))],
            kinds=[_kind(found, kind) for kind in KINDS],
            is_empty=not found.ages and not any(found.accounts.values()),
            unposted=Money(found.unposted_nanos),
            holders=[_holder(one) for one in holders()],
            chart=_chart(found),
            csv_url=f"{reverse('admin:cockpit_deferred')}?format=csv",
        )


def _row(found: Deferred, place: int) -> dict[str, Any]:
    ages = [found.age(kind, place) for kind in KINDS]
    return {
        "words": gettext(WORDS[place]),
        "ages": [(f"{age.grant_count:,}", Money(age.nanos)) for age in ages],
        "expiring": Money(sum(age.expiring_nanos for age in ages)),
        "total": Money(sum(age.nanos for age in ages)),
    }


def _kind(found: Deferred, kind: str) -> dict[str, Any]:
    return {
        "name": NAMES[kind],
        "count": f"{sum(age.grant_count for (of, _), age in found.ages.items() if of == kind):,}",
        "total": Money(found.total_nanos(kind)),
        "account": Money(found.accounts.get(KINDS[kind], 0)),
        "difference": Money(found.difference_nanos(kind)),
    }


def _holder(one: Holder) -> dict[str, Any]:
    return {
        "name": one.name,
        "prepaid": Money(one.prepaid_nanos),
        "prepaid_url": statement_url(one.organization_id, KINDS["prepaid"]),
        "promotional": Money(one.promotional_nanos),
        "promotional_url": statement_url(one.organization_id, KINDS["promotional"]),
    }


def _chart(found: Deferred) -> dict[str, Any]:
    places = range(len(WORDS))
    series = [
        series_of(
            str(NAMES[kind]), INKS[kind], "unspent", [found.age(kind, n).nanos for n in places]
        )
        for kind in KINDS
    ]
    totals = [sum(found.age(kind, place).nanos for kind in KINDS) for place in places]
    return chart_of([gettext(words) for words in WORDS], series, totals)


def _file(request: HttpRequest) -> HttpResponseBase:
    now = timezone.now()
    name = f"deferred-{now.date()}.csv"
    return whole_export(
        request, lambda: _csv(now), content_type="text/csv; charset=utf-8", name=name
    )


def _csv(now: datetime) -> bytes:
    found = deferred(now)
    rows = []
    for kind in KINDS:
        for place, words in enumerate(WORDS):
            age = found.age(kind, place)
            sums = plain_dollars(age.nanos), plain_dollars(age.expiring_nanos)
            rows.append((now.date().isoformat(), kind, words, age.grant_count, *sums))
    return csv_bytes([CSV_HEADER, *rows])
