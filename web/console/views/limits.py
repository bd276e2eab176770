"""Limits of spending and alerts: look, add, change, lift."""

from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_POST

from billing.alerts import selectors, services
from billing.alerts.selectors import Standing
from billing.reading.exports import plain_dollars
from control.errors import NotPermitted
from control.limits import spending as limits_services
from control.permissions import Permission
from web.console.limits.forms import AlertsForm, LimitForm, TermsForm
from web.console.limits.rows import Gauge, limits_view, owners_of
from web.console.page import ConsolePage, console_page
from web.console.refusals import carried_out


@console_page("limits")
def limits(page: ConsolePage) -> HttpResponse:
    """Every limit with how it stands; a POST adds one."""
    require_money(page)
    form = None
    if page.request.method == "POST":
        form = LimitForm(page.request.POST, owners=owners_of(page))
        if form.is_valid() and add(page, form):
            messages.success(page.request, "The limit is in force within a second.")
            return redirect(page.url("limits"))
    return show(page, add=form)


@require_POST
@console_page("limits", needs_recent_proof=False)
def alerts(page: ConsolePage) -> HttpResponse:
    """Choose when to be told."""
    require_money(page)
    form = AlertsForm(page.request.POST)
    if form.is_valid() and carried_out(form, lambda: choose(page, form)):
        messages.success(page.request, "The alerts are set.")
        return redirect(page.url("limits"))
    return show(page, alerts=form)


@console_page("limits")
def limit(page: ConsolePage, budget_id: str) -> HttpResponse:
    """One limit; a POST changes it."""
    require_money(page)
    standing = selectors.standing(page.organization, budget_id, timezone.now())
    form = TermsForm(page.request.POST or None, initial=terms_of(standing))
    if form.is_valid() and carried_out(form, lambda: change(page, form, budget_id)):
        messages.success(page.request, "The limit is changed, at once.")
        return redirect(page.url("limits"))
    context = {
        "gauge": Gauge(standing, ""),
        "form": form,
        "may_set": page.may(Permission.LIMITS_WRITE),
    }
    return page.render("console/billing/limit.html", context, 400 if form.errors else 200)


@require_POST
@console_page("limits")
def limit_remove(page: ConsolePage, budget_id: str) -> HttpResponse:
    """Lift a limit."""
    require_money(page)
    with transaction.atomic():
        limits_services.remove_limit(
            actor=page.actor,
            organization=page.organization,
            budget_id=budget_id,
            now=timezone.now(),
        )
        services.forget_percents(organization=page.organization, budget_id=budget_id)
    messages.success(page.request, "The limit is lifted.")
    return redirect(page.url("limits"))


def show(
    page: ConsolePage, *, add: LimitForm | None = None, alerts: AlertsForm | None = None
) -> HttpResponse:
    """Return the page of all limits, with the forms as they were sent."""
    view = limits_view(page, timezone.now(), add=add, alerts=alerts)
    status = 400 if (add and add.errors) or (alerts and alerts.errors) else 200
    return page.render("console/billing/limits.html", {"limits": view}, status)


def add(page: ConsolePage, form: LimitForm) -> bool:
    """Make the limit that the form asks for; a refusal goes back into it."""
    asked = form.cleaned_data

    @transaction.atomic
    def act() -> None:
        made = limits_services.add_limit(
            actor=page.actor,
            organization=page.organization,
            owner_id=asked["owner"],
            period=asked["period"],
            limit_nanos=asked["limit"],
            is_hard=form.is_hard,
            now=timezone.now(),
        )
        choose_percents(page, made.budget_id, asked["percents"])

    return carried_out(form, act)


@transaction.atomic
def change(page: ConsolePage, form: TermsForm, budget_id: str) -> None:
    """Change a limit to what the form says. Raises InvalidValue, Conflict."""
    limits_services.change_limit(
        actor=page.actor,
        organization=page.organization,
        budget_id=budget_id,
        limit_nanos=form.cleaned_data["limit"],
        is_hard=form.is_hard,
        now=timezone.now(),
    )
    choose_percents(page, budget_id, form.cleaned_data["percents"])


def choose(page: ConsolePage, form: AlertsForm) -> None:
    """Keep what the form says of alerts. Raises InvalidValue."""
    asked = form.cleaned_data
    services.choose_alerts(
        actor=page.actor,
        organization=page.organization,
        low_balance_nanos=asked["low_balance"],
        low_runway_days=asked["low_runway_days"],
        unusual_factor=asked["unusual_factor"],
    )


def choose_percents(page: ConsolePage, budget_id: str, percents: list[int]) -> None:
    """Keep at which percentages a budget is told."""
    services.choose_percents(
        actor=page.actor, organization=page.organization, budget_id=budget_id, percents=percents
    )


def terms_of(standing: Standing) -> dict[str, Any]:
    """Return a limit's terms as a form shows them."""
    return {
        "limit": plain_dollars(standing.limit.limit_nanos),
        "enforcement": standing.limit.enforcement,
        "percents": ", ".join(map(str, standing.alert_percents)),
    }


def require_money(page: ConsolePage) -> None:
    """Let pass who looks after the money. Raises NotPermitted."""
    if not page.may(Permission.BILLING_READ):
        raise NotPermitted("An owner, admin or billing member can see limits and alerts.")
