"""The trial balance: what every account of all organizations holds at the end of a day."""

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from billing.cockpit.downloads import CONTENT_TYPES, Records, account_names, ledger_file
from billing.cockpit.general_ledger import AccountTotals, trial_balance
from billing.economics.pages.margin_rows import Money
from billing.ledger.causes import CHART_OF_ACCOUNTS, AccountKind
from billing.reading.days import day_of
from billing.reading.exports import plain_dollars
from control.admin.base import OperatorPage

COLUMNS = (
    "as_of_utc_day",
    "account",
    "account_name",
    "account_class",
    "debits_nanos",
    "debits_usd",
    "credits_nanos",
    "credits_usd",
    "balance_nanos",
    "balance_usd",
)
"""What an account is in a file. A balance is its debits less its credits."""
DEFERRED = (_("Deferred credit"), "admin:cockpit_deferred")
REPORTS = {
    AccountKind.ACCOUNTS_RECEIVABLE: (_("Receivables"), "admin:cockpit_owed"),
    AccountKind.CUSTOMER_BALANCE: DEFERRED,
    AccountKind.PROMOTIONAL_CREDIT: DEFERRED,
    AccountKind.REVENUE: (_("Revenue"), "admin:cockpit_revenue"),
}
"""The reports that say what an account is made of."""


class TrialBalancePage(OperatorPage):
    """Every account with its debits, credits and balance."""

    title = _("Trial balance")
    purpose = _(
        "All accounts of the ledger at the end of a UTC day, of all organizations together. Debits"
        " equal credits, and the balances add up to zero."
    )
    permission_required = "ledger.view_account"
    template_name = "cockpit/trial_balance.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Show the page, or send the trial balance as a file."""
        day, form = _day(request.GET), request.GET.get("format", "")
        if form in CONTENT_TYPES:
            return ledger_file(
                request, form, COLUMNS, _records(day), report="trial_balance",
                name=f"trial-balance-{day}", details={"as_of": day.isoformat()},
            )  # fmt: skip
        return super().get(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the accounts, and all of them added up."""
        day = _day(self.request.GET)
        accounts = trial_balance(day)
        debits = sum(one.debits_nanos for one in accounts)
        credits = sum(one.credits_nanos for one in accounts)
        return super().get_context_data(
            **kwargs,
            day=day,
            is_empty=not debits and not credits,
            rows=[_row(one, day) for one in accounts],
            debits=Money(debits),
            credits=Money(credits),
            balance=Money(debits - credits),
            csv_url=_address(day, form="csv"),
            jsonl_url=_address(day, form="jsonl"),
        )


def _day(parameters: Mapping[str, str]) -> date:
    return day_of(parameters.get("day", "")) or timezone.now().date()


def _row(one: AccountTotals, day: date) -> dict[str, Any]:
    asked = {"account": one.kind, "from": day.replace(day=1).isoformat(), "to": day.isoformat()}
    report, page = REPORTS.get(one.kind, ("", ""))
    return {
        "name": one.kind.label,
        "class": CHART_OF_ACCOUNTS[one.kind].label,
        "url": f"{reverse('admin:cockpit_journal')}?{urlencode(asked)}",
        "debits": Money(one.debits_nanos),
        "credits": Money(one.credits_nanos),
        "balance": Money(one.balance_nanos),
        "report": report,
        "report_url": reverse(page) if page else "",
    }


def _records(day: date) -> Iterator[Records]:
    names = account_names()
    yield [_record(one, day, names[one.kind]) for one in trial_balance(day)]


def _record(one: AccountTotals, day: date, names: tuple[str, str]) -> dict[str, Any]:
    amounts: list[int | str] = []
    for nanos in (one.debits_nanos, one.credits_nanos, one.balance_nanos):
        amounts += [nanos, plain_dollars(nanos)]
    values = (day.isoformat(), str(one.kind), *names, *amounts)
    return dict(zip(COLUMNS, values, strict=True))


def _address(day: date, *, form: str) -> str:
    asked = urlencode({"day": day.isoformat(), "format": form})
    return f"{reverse('admin:cockpit_trial_balance')}?{asked}"
