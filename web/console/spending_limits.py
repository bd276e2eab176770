"""Spending limits and alerts: forms, rows and pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST

from billing.alerts import selectors, services
from billing.alerts.consequences import limit_consequence
from billing.alerts.defaults import PERCENTS
from billing.alerts.models import Alert, AlertSettings
from billing.alerts.selectors import Standing
from billing.alerts.wording import reached_percent
from billing.reading.exports import plain_dollars
from control.api_keys.models import ApiKey
from control.errors import NotPermitted
from control.forms import VersionedForm, clean_dollars, is_confirmed
from control.limits import spending
from control.limits.models import LimitPeriod
from control.limits.spending import Owner, SpendingLimitRow, owner_names
from control.organizations.models import Project
from control.permissions import Permission
from serving.contract.budget import kind_of, limit_budget_id, limited_id, period_of
from serving.contract.money import format_dollars
from web.console.base import PageContext, console_page
from web.console.forms import apply_or_form_error, save_edit, status_of
from web.console.labels import key_name

PERIODS = {
    LimitPeriod.DAY: _("Day"),
    LimitPeriod.WEEK: _("Week, from Monday"),
    LimitPeriod.MONTH: _("Month"),
}
ENFORCEMENTS = {
    "hard": _("Hard: refuse requests beyond it"),
    "soft": _("Soft: only send alerts"),
}
USUAL = ", ".join(map(str, PERCENTS))


class DollarsFormField(forms.CharField):
    """An amount in dollars, kept as nano-dollars; None if empty."""

    widget = forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"})

    def clean(self, value: Any) -> int | None:
        """Return nano-dollars. Raises ValidationError."""
        text = super().clean(value)
        return clean_dollars(text) if text else None


class SpendingLimitTermsForm(forms.Form):
    """The amount and enforcement of a limit, and when to send alerts."""

    limit = DollarsFormField(label=_("Limit in dollars"))
    enforcement = forms.ChoiceField(
        label=_("At the limit"), choices=list(ENFORCEMENTS.items()), initial="hard"
    )
    percents = forms.CharField(
        label=_("Alert at these percentages"),
        required=False,
        initial=USUAL,
        max_length=80,
        help_text=_("By email and webhook, once per period for each. Leave empty for no alerts."),
        widget=forms.TextInput(attrs={"inputmode": "numeric", "autocomplete": "off"}),
    )

    def clean_percents(self) -> list[int]:
        """Return whole percentages. Raises ValidationError."""
        numbers = self.cleaned_data["percents"].replace("%", " ").replace(",", " ").split()
        if not all(each.isascii() and each.isdecimal() and len(each) < 5 for each in numbers):
            raise forms.ValidationError(gettext("Enter whole numbers such as 50, 80, 100."))
        return [int(each) for each in numbers]

    @property
    def is_hard(self) -> bool:
        """Whether requests beyond the limit are rejected."""
        return bool(self.cleaned_data["enforcement"] == "hard")


class SpendingLimitChangeForm(SpendingLimitTermsForm, VersionedForm):
    """The terms of an existing limit."""


class SpendingLimitForm(SpendingLimitTermsForm):
    """A new limit, with its owner and period."""

    owner = forms.ChoiceField(label=_("Applies to"))
    period = forms.ChoiceField(label=_("Period"), choices=list(PERIODS.items()))
    field_order = ("owner", "period", "limit", "enforcement", "percents")

    def __init__(self, *args: Any, owners: Sequence[tuple[str, Any]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["owner"] = forms.ChoiceField(label=_("Applies to"), choices=list(owners))
        self.order_fields(self.field_order)


class AlertsForm(VersionedForm):
    """The settings of alerts on the balance and on unusual spending."""

    low_balance = DollarsFormField(
        label=_("Alert when the balance falls below, in dollars"),
        required=False,
        help_text=_("Leave empty for no alert."),
    )
    low_runway_days = forms.IntegerField(
        label=_("Alert when the balance lasts fewer days than"),
        required=False,
        min_value=1,
        max_value=365,
        help_text=_("At the pace of the last seven days. Leave empty for no alert."),
    )
    unusual_factor = forms.IntegerField(
        label=_("Alert when spending is this many times the usual"),
        required=False,
        min_value=2,
        max_value=100,
        help_text=_(
            "A day, or its busiest hour, compared with the median of the last 28 days."
            " Leave empty for no alert."
        ),
    )


OWNERS = {"organization": _("Organization"), "project": _("Project"), "key": _("API key")}
EVERY = {"month": _("month"), "week": _("week"), "day": _("day")}
ALERTS = {
    "month": _("%(percent)s %% of the monthly spending limit of %(name)s"),
    "week": _("%(percent)s %% of the weekly spending limit of %(name)s"),
    "day": _("%(percent)s %% of the daily spending limit of %(name)s"),
}
"""The text of a limit's alert, by the limit's period."""
EVENTS = {
    ("spending.unusual", "hour"): _("Spending in an hour far above the usual"),
    ("spending.unusual", "day"): _("Spending in a day far above the usual"),
    ("balance.low", "empty"): _("The balance is used up"),
    ("balance.low", "amount"): _("The balance is low"),
    ("balance.low", "runway"): _("The balance is low"),
}
"""The text of other alerts, by kind and rule."""
ALERTS_MAX = 10
WARN_PERCENT = 80


@dataclass(frozen=True, slots=True)
class LimitGauge:
    """A row of the table of limits."""

    standing: Standing
    url: str

    @property
    def owner(self) -> str:
        """The label of the owner's kind."""
        return str(OWNERS[self.standing.limit.kind])

    @property
    def every(self) -> str:
        """The label of the period."""
        return str(EVERY[self.standing.limit.period])

    @property
    def width(self) -> int:
        """The bar's width in percent, at most 100."""
        return min(self.standing.percent, 100)

    @property
    def level(self) -> str:
        """The severity: `good`, `warn` or `bad`."""
        if self.standing.percent >= 100:
            return "bad"
        return "warn" if self.standing.percent >= WARN_PERCENT else "good"


@dataclass(frozen=True, slots=True)
class AlertRow:
    """An alert and its text."""

    alert: Alert
    words: str


@dataclass(frozen=True, slots=True)
class LimitsView:
    """The context of `console/billing/_limits.html`, as `limits`."""

    gauges: list[LimitGauge]
    told: list[AlertRow]
    may_set: bool
    add: SpendingLimitForm
    alerts: AlertsForm


def limits_view(
    page: PageContext,
    now: datetime,
    *,
    add: SpendingLimitForm | None = None,
    alerts: AlertsForm | None = None,
) -> LimitsView:
    """Return the context for a member who may see money, with the forms as they were submitted."""
    owners = spending.limit_owners(page.organization, page.projects)
    standings = selectors.standings(page.organization, now, among=owners)
    return LimitsView(
        gauges=[LimitGauge(one, page.url("limit", one.limit.budget_id)) for one in standings],
        told=alert_rows(page),
        may_set=page.may(Permission.LIMITS_WRITE),
        add=add or SpendingLimitForm(owners=choices(owners)),
        alerts=alerts or alerts_form(page),
    )


def alerts_form(page: PageContext) -> AlertsForm:
    """Return the form with the present settings."""
    return AlertsForm(initial=chosen(selectors.alert_settings(page.organization)))


def owners_of(page: PageContext) -> list[tuple[str, Any]]:
    """Return the owners that may have limits, as the choices of a drop-down."""
    return choices(spending.limit_owners(page.organization, page.projects))


def choices(owners: list[Owner]) -> list[tuple[str, Any]]:
    """Return owners as the choices of a drop-down."""
    projects = [(one.id, one.name) for one in owners if isinstance(one, Project)]
    keys = [(one.id, key_name(one)) for one in owners if isinstance(one, ApiKey)]
    return [
        (owners[0].id, gettext("The whole organization")),
        (gettext("Projects"), projects),
        *([(gettext("API keys"), keys)] if keys else []),
    ]


def chosen(settings: AlertSettings) -> dict[str, Any]:
    """Return the settings as a form shows them."""
    low = settings.low_balance_nanos
    return {
        "low_balance": "" if low is None else plain_dollars(low),
        "low_runway_days": settings.low_runway_days,
        "unusual_factor": settings.unusual_factor,
    }


def alert_rows(page: PageContext) -> list[AlertRow]:
    """Return the latest alerts, newest first."""
    latest = list(selectors.alerts(page.organization)[:ALERTS_MAX])
    names = owner_names({limited_id(each.budget_id) for each in latest})
    return [AlertRow(each, words_of(each, names)) for each in latest]


def words_of(alert: Alert, names: dict[str, str]) -> str:
    """Return the text of an alert, in one line."""
    if event := EVENTS.get((alert.kind, alert.rule)):
        return str(event)
    if alert.kind == "credit.expiring":
        return gettext("%(amount)s of credit expires soon") % {
            "amount": format_dollars(alert.figures["remaining_nanos"])
        }
    kind, percent = kind_of(alert.budget_id), reached_percent(alert.figures) or alert.rule
    if kind in {None, "balance"}:
        return gettext("%(percent)s %% of the credit limit") % {"percent": percent}
    name = names.get(limited_id(alert.budget_id), limited_id(alert.budget_id))
    words = str(ALERTS[period_of(alert.budget_id)])
    return words % {"percent": percent, "name": name}


@console_page("limits")
def limits(page: PageContext) -> HttpResponse:
    """Show every limit with its usage; a POST adds one."""
    require_money(page)
    form = None
    if page.request.method == "POST":
        owners = spending.limit_owners(page.organization, page.projects)
        form = SpendingLimitForm(page.request.POST, owners=choices(owners))
        if form.is_valid() and may_add(page, form, owners) and add(page, form):
            messages.success(page.request, gettext("The limit is in force within a second."))
            return redirect(page.url("limits"))
    return render_limits(page, add=form)


@require_POST
@console_page("limits", needs_recent_proof=False)
def alerts(page: PageContext) -> HttpResponse:
    """Change the alert settings."""
    require_money(page)
    form = AlertsForm(page.request.POST)
    if save_edit(form, page.organization.id, lambda: alerts_form(page), lambda: choose(page, form)):
        messages.success(page.request, gettext("The alerts are saved."))
        return redirect(page.url("limits"))
    return render_limits(page, alerts=form)


@console_page("limits")
def limit(page: PageContext, limit_id: str) -> HttpResponse:
    """Show a limit; a POST changes it."""
    require_money(page)
    standing = selectors.standing(page.organization, limit_id, timezone.now())

    def present() -> SpendingLimitChangeForm:
        now = selectors.standing(page.organization, limit_id, timezone.now())
        return SpendingLimitChangeForm(initial=terms_of(now))

    form = SpendingLimitChangeForm(page.request.POST or None, initial=terms_of(standing))
    if (
        form.is_valid()
        and may_change(page, form, standing.limit)
        and save_edit(form, page.organization.id, present, lambda: change(page, form, limit_id))
    ):
        messages.success(page.request, gettext("The limit is changed, effective at once."))
        return redirect(page.url("limits"))
    context = {
        "gauge": LimitGauge(standing, ""),
        "form": form,
        "may_set": page.may(Permission.LIMITS_WRITE),
    }
    return page.render("console/billing/limit.html", context, status_of(form))


@require_POST
@console_page("limits")
def limit_remove(page: PageContext, limit_id: str) -> HttpResponse:
    """Remove a limit."""
    require_money(page)
    with transaction.atomic():
        spending.remove_limit(
            actor=page.actor,
            organization=page.organization,
            budget_id=limit_id,
            now=timezone.now(),
        )
        services.forget_percents(organization=page.organization, budget_id=limit_id)
    messages.success(page.request, gettext("The limit is removed."))
    return redirect(page.url("limits"))


def render_limits(
    page: PageContext, *, add: SpendingLimitForm | None = None, alerts: AlertsForm | None = None
) -> HttpResponse:
    """Return the page of all limits, with the forms as they were submitted."""
    view = limits_view(page, timezone.now(), add=add, alerts=alerts)
    return page.render("console/billing/limits.html", {"limits": view}, status_of(add, alerts))


def may_add(page: PageContext, form: SpendingLimitForm, owners: list[Owner]) -> bool:
    """Return whether a new limit stops no work, or the member confirmed it."""
    data = form.cleaned_data
    [name] = [owner.name for owner in owners if owner.id == data["owner"]]
    return stops_nothing(page, form, limit_budget_id(data["owner"], data["period"]), name)


def may_change(page: PageContext, form: SpendingLimitTermsForm, before: SpendingLimitRow) -> bool:
    """Return whether a changed limit stops no more than before, or the member confirmed it."""
    if before.is_hard and before.limit_nanos <= form.cleaned_data["limit"]:
        return True
    return stops_nothing(page, form, before.budget_id, before.name)


def stops_nothing(
    page: PageContext, form: SpendingLimitTermsForm, budget_id: str, name: str
) -> bool:
    """Return whether the form's limit refuses no request yet, or the member confirmed it."""
    if not form.is_hard:
        return True
    nanos = form.cleaned_data["limit"]
    stops = limit_consequence(page.organization, budget_id, name, nanos, timezone.now())
    return is_confirmed(form, nanos, stops)


def add(page: PageContext, form: SpendingLimitForm) -> bool:
    """Create the form's limit and return whether it succeeded; errors are added to the form."""
    data = form.cleaned_data

    @transaction.atomic
    def act() -> None:
        new_limit = spending.add_limit(
            actor=page.actor,
            organization=page.organization,
            owner_id=data["owner"],
            period=data["period"],
            limit_nanos=data["limit"],
            is_hard=form.is_hard,
            now=timezone.now(),
        )
        choose_percents(page, new_limit.budget_id, data["percents"])

    return apply_or_form_error(form, act)


@transaction.atomic
def change(page: PageContext, form: SpendingLimitTermsForm, limit_id: str) -> None:
    """Change a limit to the form's values. Raises InvalidValue, Conflict."""
    spending.change_limit(
        actor=page.actor,
        organization=page.organization,
        budget_id=limit_id,
        limit_nanos=form.cleaned_data["limit"],
        is_hard=form.is_hard,
        now=timezone.now(),
    )
    choose_percents(page, limit_id, form.cleaned_data["percents"])


def choose(page: PageContext, form: AlertsForm) -> None:
    """Save the form's alert settings. Raises InvalidValue."""
    data = form.cleaned_data
    services.choose_alerts(
        actor=page.actor,
        organization=page.organization,
        low_balance_nanos=data["low_balance"],
        low_runway_days=data["low_runway_days"],
        unusual_factor=data["unusual_factor"],
    )


def choose_percents(page: PageContext, limit_id: str, percents: list[int]) -> None:
    """Save the percentages at which a budget sends alerts."""
    services.choose_percents(
        actor=page.actor, organization=page.organization, budget_id=limit_id, percents=percents
    )


def terms_of(standing: Standing) -> dict[str, Any]:
    """Return a limit's terms as a form shows them."""
    return {
        "limit": plain_dollars(standing.limit.limit_nanos),
        "enforcement": standing.limit.enforcement,
        "percents": ", ".join(map(str, standing.alert_percents)),
    }


def require_money(page: PageContext) -> None:
    """Raise NotPermitted if the member may not see limits."""
    if not page.may(Permission.BILLING_READ):
        raise NotPermitted(
            gettext("Only owners, admins and billing members can see limits and alerts.")
        )
