"""What the page of limits shows: gauges, forms, and what was told."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from billing.alerts import selectors
from billing.alerts.models import Alert, AlertSettings
from billing.alerts.selectors import Standing
from billing.reading.exports import plain_dollars
from control.api_keys.models import ApiKey
from control.limits import spending as limits
from control.limits.spending import Owner, owner_names
from control.organizations.models import Project
from control.permissions import Permission
from serving.contract.budget import kind_of, limited_id, period_of
from web.console.limits.forms import AlertsForm, LimitForm
from web.console.page import ConsolePage

OWNERS = {"organization": "Organization", "project": "Project", "key": "API key"}
EVERY = {"month": "month", "week": "week", "day": "day"}
TOLD_MAX = 10
WARN_PERCENT = 80


@dataclass(frozen=True, slots=True)
class Gauge:
    """A limit as a line of the table."""

    standing: Standing
    url: str

    @property
    def owner(self) -> str:
        """What kind of thing is limited."""
        return OWNERS[self.standing.limit.kind]

    @property
    def every(self) -> str:
        """The period in a word."""
        return EVERY[self.standing.limit.period]

    @property
    def width(self) -> int:
        """The bar's width in percent: never beyond its end."""
        return min(self.standing.percent, 100)

    @property
    def level(self) -> str:
        """How grave it is: `good`, `warn` or `bad`."""
        if self.standing.percent >= 100:
            return "bad"
        return "warn" if self.standing.percent >= WARN_PERCENT else "good"


@dataclass(frozen=True, slots=True)
class Told:
    """An alert in words."""

    alert: Alert
    words: str


@dataclass(frozen=True, slots=True)
class LimitsView:
    """All that `console/billing/_limits.html` needs, as `limits`."""

    gauges: list[Gauge]
    told: list[Told]
    may_set: bool
    add: LimitForm
    alerts: AlertsForm


def limits_view(
    page: ConsolePage,
    now: datetime,
    *,
    add: LimitForm | None = None,
    alerts: AlertsForm | None = None,
) -> LimitsView:
    """Return what the partial shows to a member who may see money; forms as they were sent."""
    owners = limits.limit_owners(page.organization, page.projects)
    standings = selectors.standings(page.organization, now, among=owners)
    return LimitsView(
        gauges=[Gauge(one, page.url("limit", one.limit.budget_id)) for one in standings],
        told=told_of(page),
        may_set=page.may(Permission.LIMITS_WRITE),
        add=add or LimitForm(owners=choices(owners)),
        alerts=alerts or AlertsForm(initial=chosen(selectors.alert_settings(page.organization))),
    )


def owners_of(page: ConsolePage) -> list[tuple[str, Any]]:
    """Return who may be limited, as the choices of a drop-down."""
    return choices(limits.limit_owners(page.organization, page.projects))


def choices(owners: list[Owner]) -> list[tuple[str, Any]]:
    """Return owners as the choices of a drop-down."""
    projects = [(one.id, one.name) for one in owners if isinstance(one, Project)]
    keys = [(one.id, one.name) for one in owners if isinstance(one, ApiKey)]
    return [
        (owners[0].id, "The whole organization"),
        ("Projects", projects),
        *([("API keys", keys)] if keys else []),
    ]


def chosen(settings: AlertSettings) -> dict[str, Any]:
    """Return the settings as a form shows them."""
    low = settings.low_balance_nanos
    return {
        "low_balance": "" if low is None else plain_dollars(low),
        "low_runway_days": settings.low_runway_days,
        "unusual_factor": settings.unusual_factor,
    }


def told_of(page: ConsolePage) -> list[Told]:
    """Return what was told lately, the newest first."""
    found = list(selectors.alerts(page.organization)[:TOLD_MAX])
    names = owner_names({limited_id(one.budget_id) for one in found})
    return [Told(one, words_of(one, names)) for one in found]


def words_of(alert: Alert, names: dict[str, str]) -> str:
    """Return what an alert said, in a line."""
    if alert.kind == "spend.unusual":
        return (
            "An hour far above the usual" if alert.rule == "hour" else "A day far above the usual"
        )
    if alert.kind == "balance.low":
        return "The balance is used up" if alert.rule == "empty" else "The balance runs low"
    kind = kind_of(alert.budget_id)
    if kind in {None, "balance"}:
        return f"{alert.rule} % of the credit line"
    name = names.get(limited_id(alert.budget_id), limited_id(alert.budget_id))
    return f"{alert.rule} % of a {EVERY[period_of(alert.budget_id)]} of {name}"
