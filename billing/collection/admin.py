"""The operator's page of collection: who is where, what follows and when, and what can be done."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import action
from unfold.widgets import UnfoldAdminSingleDateWidget

from billing.collection import selectors
from billing.collection.models import Case, ScheduledStep, Settings, State, Step
from billing.collection.services import operator
from billing.invoicing.printed import day, dollars
from control.admin.base import OperatorAdmin, ReadOnlyAdmin, row_url
from control.admin.confirm import Confirmation, ReasonForm, confirm
from control.admin.fields import NOTHING, idempotent_action
from control.organizations.admin import OrganizationOwnedAdmin
from control.permissions import Actor

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

CHANGE = "collection.change_case"
WAITS: dict[str, "StrOrPromise"] = {
    "pause": _("paused"),
    "payment": _("payment in progress"),
    "dispute": _("disputed"),
    "": "",
}
STEPS_SHOWN = 50
INVOICE = "admin:invoicing_invoice_change"
AT_TIMES = ("limited_at", "suspended_at", "paused_until", "pause_reason")
"""What most cases have nothing of."""


def _case(request: HttpRequest, object_id: str) -> Case:
    """Return a case, looked up once for all that a page asks of it."""
    known = vars(request)
    if "case" not in known:
        known["case"] = selectors.case_by_id(unquote(object_id))
    found: Case = known["case"]
    return found


class UntilForm(ReasonForm):
    """Until when, and why."""

    until = forms.DateField(
        label=_("Until"),
        required=False,
        widget=UnfoldAdminSingleDateWidget,
        help_text=_("The last day of the pause, such as one that payment was promised by."),
    )

    field_order = ("until", "reason")


def ask(
    page: ReadOnlyAdmin, request: HttpRequest, object_id: str, asked: Confirmation
) -> HttpResponse:
    """Ask to confirm an action on one case, and carry it out once it is sent."""
    row = selectors.case_by_id(unquote(object_id))
    verb = partial(asked.verb, organization_id=row.pk, now=timezone.now())
    return confirm(page, request, row, replace(asked, verb=verb))


def deciding(
    title: "StrOrPromise",
    words: "StrOrPromise",
    verb: Callable[..., object],
    *,
    form: type[ReasonForm] = ReasonForm,
    permission: str = "decide",
) -> Any:
    """Return an action of a case's page that asks to confirm it, named as its verb is."""

    def shown(self: ReadOnlyAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
        return ask(self, request, object_id, Confirmation(title, words, form, verb))

    shown.__name__ = verb.__name__  # the admin knows an action by its function's name
    return action(description=title, permissions=[permission])(shown)


@admin.register(Case)
class CaseAdmin(ReadOnlyAdmin):
    """Who is overdue, the gravest first, with the next step of each and when it is taken."""

    list_display = (
        "organization", "state", "due", "since", "follows", "follows_on", "waits",
    )  # fmt: skip
    list_filter = ("state",)
    list_select_related = ("organization",)
    search_fields = ("organization__name", "organization__id")
    fields = (
        "organization", "state", "due", "invoices", "since", "follows", "follows_on", "waits",
        "limited_at", "suspended_at", "paused_until", "pause_reason", "log",
    )  # fmt: skip
    readonly_fields = fields
    actions_detail = (
        "pause", "resume", "retry_now", "skip", "limit_now", "suspend_now", "reinstate",
        "write_off",
    )  # fmt: skip

    def get_fields(self, request: HttpRequest, obj: Case | None = None) -> Any:
        """Return what there is to show: measures and pauses only where there are some."""
        return [name for name in self.fields if name not in AT_TIMES or getattr(obj, name, None)]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Case]:
        """Return those with something overdue or given up; others are found by their page."""
        rows = super().get_queryset(request)
        match = request.resolver_match
        if match is not None and (match.url_name or "").endswith("changelist"):
            rows = rows.exclude(state=State.CURRENT)
        return rows.order_by("-suspended_at", "-limited_at", "next_on")

    @admin.display(description=_("Overdue"), ordering="due_cents")
    def due(self, row: Case) -> str:
        """Return what was overdue at the last check."""
        return dollars(row.due_cents)

    @admin.display(description=_("Invoices"))
    @idempotent_action
    def invoices(self, row: Case) -> str:
        """Return the invoices that are overdue now, with what is left of each."""
        found = selectors.debt(row.pk, timezone.now()).due
        line = gettext('<a href="{url}">{number}</a>: {amount}, due {day}')
        lines = (
            format_html(
                line,
                url=row_url(INVOICE, one.invoice.pk),
                number=one.invoice.number,
                amount=dollars(one.open_cents),
                day=day(one.invoice.due_on),
            )
            for one in found
        )
        return format_html_join("", "{}<br>", ((each,) for each in lines)) or NOTHING

    @admin.display(description=_("Since"), ordering="opened_at")
    def since(self, row: Case) -> str:
        """Return when it was first found overdue."""
        return day(row.opened_at.date()) if row.opened_at else NOTHING

    @admin.display(description=_("Next step"), ordering="next_kind")
    def follows(self, row: Case) -> str:
        """Return what follows."""
        return row.get_next_kind_display() or NOTHING

    @admin.display(description=_("Next step on"), ordering="next_on")
    def follows_on(self, row: Case) -> str:
        """Return the day of the next step, at the operator's hour."""
        return day(row.next_on) if row.next_on else NOTHING

    @admin.display(description=_("On hold"), ordering="waits_for")
    def waits(self, row: Case) -> str:
        """Return what holds the next step up."""
        if row.waits_for == "pause" and row.paused_until:
            return gettext("paused until %(day)s") % {"day": day(row.paused_until)}
        return str(WAITS[row.waits_for]) or NOTHING

    @admin.display(description=_("Steps taken"))
    @idempotent_action
    def log(self, row: Case) -> str:
        """Return what was done, the newest first."""
        line = gettext("%(time)s UTC %(outcome)s, %(amount)s overdue, by %(name)s")
        lines = (
            (
                line
                % {
                    "time": f"{one.taken_at:%Y-%m-%d %H:%M}",
                    "outcome": one.outcome.replace("_", " "),
                    "amount": dollars(one.due_cents),
                    "name": one.taken_by,
                },
                f": {one.reason}" if one.reason else "",
            )
            for one in selectors.steps(row.pk)[:STEPS_SHOWN]
        )
        return format_html_join("", "{}{}<br>", lines) or NOTHING

    def has_decide_permission(self, request: HttpRequest, object_id: str) -> bool:
        """What is being collected is decided about, by who may."""
        may = request.user.has_perm(CHANGE)
        return may and _case(request, object_id).is_open

    def has_resume_permission(self, request: HttpRequest, object_id: str) -> bool:
        """What is paused may go on."""
        may = request.user.has_perm(CHANGE)
        return may and _case(request, object_id).paused_at is not None

    def has_reinstate_permission(self, request: HttpRequest, object_id: str) -> bool:
        """What collection limited or suspended may be served again."""
        may = request.user.has_perm(CHANGE)
        return may and _case(request, object_id).has_measures

    pause = deciding(
        _("Pause"),
        _("No step is taken until the day has passed, or until you resume if you name no day."),
        operator.pause,
        form=UntilForm,
    )
    resume = deciding(
        _("Resume"),
        _("The next step is taken tomorrow at the earliest."),
        operator.resume,
        permission="resume",
    )
    retry_now = deciding(
        _("Retry now"),
        _(
            "The saved payment method is charged the amount that is due. Without one, a reminder is"
            " emailed."
        ),
        operator.retry_now,
    )
    skip = deciding(
        _("Skip next step"),
        _("The next step is skipped. The step after it follows at its usual interval."),
        operator.skip,
    )
    limit_now = deciding(
        _("Limit"),
        _(
            "The credit limit is suspended at once: only prepaid credit can be used. The"
            " organization is notified by email."
        ),
        operator.limit_now,
    )
    suspend_now = deciding(
        _("Suspend"),
        _(
            "All API keys of the organization stop working within a second. The organization is"
            " notified by email."
        ),
        operator.suspend_now,
    )
    reinstate = deciding(
        _("Reinstate"),
        _(
            "Service is restored, and collection pauses until the day has passed, or for a week if"
            " you name no day. After that, limiting and suspending follow again."
        ),
        operator.reinstate,
        form=UntilForm,
        permission="reinstate",
    )

    @action(description=_("Write off"), permissions=["decide"])
    def write_off(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give the debt up."""
        owed = dollars(selectors.debt(unquote(object_id), timezone.now()).cents)
        words = gettext(
            "%(amount)s of debt is written off as a loss. A limited or suspended service"
            " stays so until you reinstate it."
        ) % {"amount": owed}
        confirmation = Confirmation(_("Write off"), words, ReasonForm, operator.write_off)
        return ask(self, request, object_id, confirmation)


@admin.register(ScheduledStep)
class ScheduledStepAdmin(OperatorAdmin):
    """The schedule: what is done so many days after an invoice is due."""

    list_display = ("days", "kind")
    fields = ("days", "kind")
    ordering = ("days",)
    actions = ("unschedule",)

    def add_row(self, actor: Actor, values: dict[str, Any]) -> ScheduledStep:
        """Add a step."""
        return operator.schedule_step(
            actor=actor, days=values.get("days", 0), kind=values.get("kind", "")
        )

    def change_row(
        self, actor: Actor, row: ScheduledStep, changes: dict[str, Any]
    ) -> ScheduledStep:
        """Move a step."""
        row = ScheduledStep.objects.get(pk=row.pk)
        days, kind = changes.get("days", row.days), changes.get("kind", row.kind)
        return operator.schedule_step(actor=actor, days=days, kind=kind, step=row)

    @action(description=_("Remove from the schedule"), permissions=["change"])
    def unschedule(self, request: HttpRequest, queryset: QuerySet[ScheduledStep]) -> None:
        """Take steps out."""
        self.carry_out(
            request, queryset, _("%(row)s is no longer scheduled."),
            lambda actor, row: operator.unschedule_step(actor=actor, step=row),
        )  # fmt: skip


@admin.register(Settings)
class SettingsAdmin(OperatorAdmin):
    """What is too little to collect, and when in the day steps are taken."""

    list_display = ("__str__", "min_cents", "hour")
    fields = ("min_cents", "hour")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """There is one row."""
        return False

    def change_row(self, actor: Actor, row: Settings, changes: dict[str, Any]) -> Settings:
        """Change the choices."""
        before = selectors.settings()
        values = {"min_cents": before.min_cents, "hour": before.hour, **changes}
        return operator.set_settings(actor=actor, **values)


@admin.register(Step)
class StepAdmin(OrganizationOwnedAdmin, ReadOnlyAdmin):
    """Every step that was taken, the newest first."""

    list_display = (
        "taken_at", "owner", "name", "outcome", "due", "reason", "taken_by",
    )  # fmt: skip
    list_filter = ("outcome",)
    search_fields = ("organization_id", "invoice_id", "reason")
    ordering = ("-taken_at",)

    @admin.display(description=_("Overdue"), ordering="due_cents")
    def due(self, row: Step) -> str:
        """Return what was overdue."""
        return dollars(row.due_cents)
