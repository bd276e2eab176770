"""What an alert says, in the words of its mail."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from billing.alerts.looking import Raised
from serving.contract.budget import kind_of, limited_id, period_of
from serving.contract.money import format_dollars

EVERY = {"month": "monthly", "week": "weekly", "day": "daily"}
OWNER = {"organization": "the organization", "project": "the project", "key": "the API key"}


def subject_of(raised: Raised, names: Mapping[str, str]) -> str:
    """Return what the alert is about, such as: the daily budget of the project Search."""
    kind = kind_of(raised.budget_id)
    if kind == "balance" or kind is None:
        return (
            "the credit line" if raised.kind == "spending_limit.reached" else "the credit balance"
        )
    owner = f"{OWNER[kind]} {names.get(limited_id(raised.budget_id), '')}".strip()
    return f"the {EVERY[period_of(raised.budget_id)]} budget of {owner}"


def context_of(
    raised: Raised, *, names: Mapping[str, str], link: str, is_hard: bool
) -> dict[str, Any]:
    """Return what the templates show: amounts and dates as text. `names` are by id."""
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
        "percent": figures.get("percent"),
        "renews_at": _when(figures.get("renews_at")),
        "days": _days(figures),
        "is_hard": is_hard,
        "link": link,
    }


def _when(moment: str | None) -> str:
    return f"{datetime.fromisoformat(moment):%-d %B %Y, %H:%M} UTC" if moment else ""


def _days(figures: dict[str, Any]) -> str:
    """Return how long a balance lasts, in whole days at the last week's pace."""
    pace = figures.get("nanos_per_day")
    if not pace:
        return ""
    days = max(figures["balance_nanos"], 0) // pace
    return "less than a day" if days < 1 else "a day" if days == 1 else f"{days} days"
