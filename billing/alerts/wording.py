"""What an alert says, in the words of its mail."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.utils.dateformat import format as format_date
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from billing.alerts.looking import Raised
from billing.credit.models import GrantKind
from billing.credit.selectors import spent_percent
from serving.contract.budget import kind_of, limited_id, period_of
from serving.contract.money import format_dollars

SUBJECTS = {
    ("organization", "month"): _("the monthly spending limit of the organization {name}"),
    ("organization", "week"): _("the weekly spending limit of the organization {name}"),
    ("organization", "day"): _("the daily spending limit of the organization {name}"),
    ("project", "month"): _("the monthly spending limit of the project {name}"),
    ("project", "week"): _("the weekly spending limit of the project {name}"),
    ("project", "day"): _("the daily spending limit of the project {name}"),
    ("key", "month"): _("the monthly spending limit of the API key {name}"),
    ("key", "week"): _("the weekly spending limit of the API key {name}"),
    ("key", "day"): _("the daily spending limit of the API key {name}"),
}
"""What a spending limit is called, by the kind of its owner and its period."""


CREDIT_KINDS = {
    GrantKind.PROMOTIONAL: _("promotional credit"),
    GrantKind.PREPAID: _("prepaid credit"),
}


def subject_of(raised: Raised, names: Mapping[str, str]) -> str:
    """Return what the alert is about, such as: the daily spending limit of the project
    Search."""
    kind = kind_of(raised.budget_id)
    if kind in {None, "balance"} and raised.kind == "spending_limit.reached":
        return gettext("the credit limit")
    return limit_words(raised.budget_id, names.get(limited_id(raised.budget_id), ""))


def limit_words(budget_id: str, name: str) -> str:
    """Return what a limit is called, such as: the daily spending limit of the project Search."""
    kind = kind_of(budget_id)
    if kind is None or kind == "balance":
        return gettext("the credit balance")
    return SUBJECTS[kind, period_of(budget_id)].format(name=name).strip()


def context_of(
    raised: Raised, *, names: Mapping[str, str], link: str, is_hard: bool, days: int | None
) -> dict[str, Any]:
    """Return what the templates show: amounts and dates as text. `names` are by id, `days` are how
    long a low balance lasts."""
    figures = raised.figures
    money = {
        name.removesuffix("_nanos"): format_dollars(value)
        for name, value in figures.items()
        if name.endswith(("_nanos", "nanos_per_day")) and value is not None
    }
    return money | {
        "organization": names.get(raised.organization_id, ""),
        "subject": subject_of(raised, names),
        "rule": raised.rule,
        "percent": reached_percent(figures),
        "threshold": figures.get("percent"),
        "renews_at": _when(figures.get("renews_at")),
        "expires_at": _when(figures.get("expires_at")),
        "credit": str(CREDIT_KINDS.get(figures.get("credit_kind", ""), "")),
        "days": _days(days),
        "is_hard": is_hard,
        "link": link,
    }


def reached_percent(figures: Mapping[str, Any]) -> int | None:
    """Return the share of a limit that is spent, by the figures of its alert: at or above the
    percentage that the alert is set at."""
    if "limit_nanos" not in figures:
        return None
    return spent_percent(figures["spent_nanos"], figures["limit_nanos"])


def _when(moment: str | None) -> str:
    if not moment:
        return ""
    return f"{format_date(datetime.fromisoformat(moment), 'j F Y, H:i')} UTC"


def _days(days: int | None) -> str:
    """Return how long a balance lasts, in whole days at the last week's pace."""
    if days is None:
        return ""
    if days < 1:
        return gettext("less than a day")
    return ngettext("%(days)d day", "%(days)d days", days) % {"days": days}
