"""The operator's replays: asked for from a draft's page, looked at when they are done."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Page, Paginator
from django.db import transaction
from django.db.models import F, Func, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.economics.models import ReplayLine, ReplayRun
from billing.economics.replay import SUMS
from billing.economics.replay_runs import (
    DAYS_MAX,
    cancel_replay,
    has_changed,
    last_month,
    start_replay,
)
from billing.economics.tasks import replay
from billing.reading.selectors import variant_names
from control.admin.base import ReadOnlyAdmin, operator
from control.admin.fields import NOTHING, displayed
from control.errors import ServiceError
from control.organizations.selectors import organizations
from control.permissions import Actor
from control.pricing import selectors as prices
from serving.contract.money import exact_dollars, format_dollars

PAGE = 50
"""Organizations on a page."""
HEAD = (
    "", _("Requests"), _("Priced by the draft"), _("Kept by a contract"), _("Charged"),
    _("Charged by the draft"), _("Difference"), "%", _("Waived"), _("Waived by the draft"),
)  # fmt: skip


@admin.register(ReplayRun)
class ReplayRunAdmin(ReadOnlyAdmin):
    """Replays, the newest first."""

    list_display = ("__str__", "status", "requested_by", "requested_at")
    list_select_related = ("book",)
    fields = ("book", "first_day", "last_day")
    show_full_result_count = False

    status = displayed("state", _("Status"))

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Allow operators who may add replays."""
        return bool(request.user.has_perm("economics.add_replayrun"))

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Operators alone see what every organization pays."""
        return operator(request).is_operator

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Return the month before, and the book that the link names."""
        first_day, last_day = last_month(timezone.now())
        given = super().get_changeform_initial_data(request)
        return {"first_day": first_day, "last_day": last_day, **given}

    def formfield_for_foreignkey(self, db_field: Any, request: Any, **options: Any) -> Any:
        """Offer drafts alone."""
        options["queryset"] = prices.books().filter(published_at__isnull=True)
        return super().formfield_for_foreignkey(db_field, request, **options)

    def formfield_for_dbfield(self, db_field: Any, request: Any, **options: Any) -> Any:
        """Say what the days mean."""
        field = super().formfield_for_dbfield(db_field, request, **options)
        if isinstance(field, forms.DateField):
            words = gettext("UTC, included. At most %(days)s days.")
            field.help_text = words % {"days": DAYS_MAX}
        return field

    def add_row(self, actor: Actor, values: dict[str, Any]) -> ReplayRun:
        """Ask for a replay; a worker begins at once, or within half a minute without the broker."""
        run = start_replay(actor=actor, **values, now=timezone.now())
        transaction.on_commit(replay.delay, robust=True)
        return run

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Take the whole form: days left as they were offered were chosen too."""
        row = self.add_row(operator(request), form.cleaned_data)
        obj.__dict__.update(row.__dict__)

    def response_add(self, request: HttpRequest, obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Go to the result."""
        return redirect(f"{self.admin_site.name}:economics_replayrun_change", obj.pk)

    def change_view(
        self, request: HttpRequest, object_id: str, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Show how far the replay is and what it came to, totals first; cancel it when asked."""
        run = self.get_object(request, object_id)
        if not self.has_view_permission(request, run):
            raise PermissionDenied
        if run is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)
        if request.method == "POST":
            return self._cancel(request, run)
        page = organization_page(run, request.GET.get("page", "1"))
        context = {
            **self.admin_site.each_context(request), "opts": self.opts, "title": str(run),
            "run": run, "has_changed": has_changed(run), "head": HEAD, "total": total(run),
            "page": page, "rows": rows_of(run, page.object_list),
        }  # fmt: skip
        return TemplateResponse(request, "admin/economics/replay.html", context)

    def _cancel(self, request: HttpRequest, run: ReplayRun) -> HttpResponse:
        try:
            cancel_replay(actor=operator(request), run=run, now=timezone.now())
        except ServiceError as error:
            messages.error(request, error.message)
        return redirect(request.path)


def organization_page(run: ReplayRun, number: str) -> Page:
    """Return a page of organizations with their sums, the greatest difference first."""
    sums = run.lines.values("organization_id").annotate(**added())
    difference = Func(F("draft_nanos_sum") - F("charged_nanos_sum"), function="abs")
    return Paginator(sums.order_by(difference.desc(), "organization_id"), PAGE).get_page(number)


def total(run: ReplayRun) -> tuple[str, ...]:
    """Return the row of everybody."""
    return cells(gettext("All organizations"), run.lines.aggregate(**added()))


def rows_of(
    run: ReplayRun, found: Iterable[dict[str, Any]]
) -> list[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """Return each organization's row with those of its variants and tiers."""
    found = list(found)
    ids = [one["organization_id"] for one in found]
    names = dict(organizations().filter(id__in=ids).values_list("id", "name"))
    lines = list(run.lines.filter(organization_id__in=ids))
    variants = variant_names(line.variant_id for line in lines)
    by_id: dict[str, list[ReplayLine]] = {}
    for line in sorted(lines, key=lambda line: -abs(line.draft_nanos - line.charged_nanos)):
        by_id.setdefault(line.organization_id, []).append(line)
    return [
        (cells(names.get(one["organization_id"], one["organization_id"]), one),
         [line_cells(line, variants) for line in by_id.get(one["organization_id"], ())])
        for one in found
    ]  # fmt: skip


def line_cells(line: ReplayLine, variants: dict[str, str]) -> tuple[str, ...]:
    """Return a variant and tier's row."""
    label = f"{variants.get(line.variant_id, line.variant_id)} {line.tier}"
    return cells(label, {f"{name}_sum": getattr(line, name) for name in SUMS})


def added() -> dict[str, Sum]:
    """Return the sums over lines, by their names."""
    return {f"{name}_sum": Sum(name, default=0) for name in SUMS}


def cells(label: str, sums: dict[str, Any]) -> tuple[str, ...]:
    """Return one row of the table: dollars to the nano where it is a difference."""
    of = {name: int(sums[f"{name}_sum"]) for name in SUMS}
    difference = of["draft_nanos"] - of["charged_nanos"]
    return (
        label,
        *(f"{of[name]:,}" for name in ("request_count", "repriced_count", "contract_count")),
        format_dollars(of["charged_nanos"]),
        format_dollars(of["draft_nanos"]),
        ("+" if difference > 0 else "") + exact_dollars(difference),
        percent(difference, of["charged_nanos"]),
        format_dollars(of["waived_nanos"]),
        format_dollars(of["draft_waived_nanos"]),
    )


def percent(part: int, whole: int) -> str:
    """Return a signed share in percent, halves of a hundredth rounded away from zero; a dash
    without a whole.

    Worked examples: 1 of 3 is `+33.33`, -1 of 8 is `-12.50`, 0 of 5 is `0.00`.
    """
    if whole == 0:
        return NOTHING
    hundredths = (abs(part) * 20_000 + whole) // (2 * whole)
    sign = "" if hundredths == 0 else "-" if part < 0 else "+"
    return f"{sign}{hundredths // 100:,}.{hundredths % 100:02}"
