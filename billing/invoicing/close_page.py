"""The operator's page of a month's close: its checks, a dry run, the close, and how far it is."""

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Count, Sum
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.invoicing import closes, selectors
from billing.invoicing.models import Invoice
from billing.invoicing.periods import Period, last_period, parse_period
from billing.invoicing.printed import dollars
from billing.invoicing.services.closing import (
    Preview,
    due_organizations,
    preview_month,
    request_close,
)
from billing.invoicing.tasks import close_months
from control.admin.base import OperatorPage, operator
from control.errors import ServiceError
from control.organizations.selectors import organizations

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

SHOWN_MAX = 100
"""Organizations of a dry run on the page; `penstock billing close-month --dry-run` prints all."""


@dataclass(frozen=True, slots=True)
class Check:
    """What must hold before a month is closed."""

    words: "StrOrPromise"
    holds: bool
    detail: "StrOrPromise" = ""
    stops: bool = False
    """Whether nothing is closed before it holds."""


class ClosePage(OperatorPage):
    """Closing a month."""

    title = _("Close of the month")
    purpose = _(
        "Creates an invoice for each organization with usage in a month. It runs automatically"
        " about an hour after the month ends; run again, it continues with what is left."
    )
    permission_required = "invoicing.view_close"
    template_name = "invoicing/close.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the month's checks, how far its close is, and a dry run where it is asked for."""
        now = timezone.now()
        period, problem = asked_period(self.request)
        due, checks = checks_of(period)
        rows = []
        is_closable = all(one.holds for one in checks if one.stops)
        if "dry" in self.request.GET and not problem and is_closable:
            found = preview_month(period=period, now=now)
            rows = [row_of(one) for one in named(list(islice(found, SHOWN_MAX)))]
        invoiced = Invoice.objects.filter(starts_on=period.starts_on)
        made = invoiced.aggregate(count=Count("pk"), cents=Coalesce(Sum("total_cents"), 0))
        return super().get_context_data(
            **kwargs,
            period=period,
            problem=problem,
            checks=checks,
            is_closable=is_closable,
            close=closes.close_of(period),
            invoiced_count=made["count"],
            invoiced_total=dollars(made["cents"]),
            left_count=len(due),
            failures=list(closes.failures(period)),
            rows=rows,
            is_dry="dry" in self.request.GET,
            shown_max=SHOWN_MAX,
        )

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Let a worker close the month."""
        if not request.user.has_perm("invoicing.change_close"):
            raise PermissionDenied
        try:
            period = parse_period(request.POST.get("period", ""))
            request_close(period=period, actor=operator(request), now=timezone.now())
        except ServiceError as error:
            messages.error(request, error.message)
            return redirect(request.get_full_path())
        transaction.on_commit(close_months.delay, robust=True)
        messages.success(
            request,
            gettext("%(month)s is being closed. Reload this page to see the progress.")
            % {"month": period},
        )
        return redirect(f"{reverse('admin:invoicing_month')}?period={period}")


def asked_period(request: HttpRequest) -> tuple[Period, str]:
    """Return the month in the address, the last one by default, and what is wrong with it."""
    last = last_period(timezone.now())
    try:
        return parse_period(request.GET.get("period") or str(last)), ""
    except ServiceError as error:
        return last, error.message


def checks_of(period: Period) -> tuple[list[str], list[Check]]:
    """Return who is left to be invoiced, and what must hold before a month is closed."""
    refusal = ""
    try:
        due = due_organizations(period, now=timezone.now())
    except ServiceError as error:
        due, refusal = closes.uninvoiced(period), error.message
    entity = selectors.default_legal_entity()
    named_entity = entity is not None and bool(entity.address)
    return due, [
        Check(_("The month is over, its days are sealed and all of its usage is recorded"),
              not refusal, refusal, stops=True),
        Check(_("A legal entity with an address is set up"), named_entity,
              "" if named_entity else _("Invoices would have no sender's address.")),
    ]  # fmt: skip


def named(previews: list[Preview]) -> list[tuple[str, Preview]]:
    """Return previews with their organizations' names."""
    ids = [one.organization_id for one in previews]
    names = dict(organizations().filter(id__in=ids).values_list("id", "name"))
    return [(names.get(one.organization_id, one.organization_id), one) for one in previews]


def row_of(found: tuple[str, Preview]) -> dict[str, Any]:
    """Return one line of the dry run."""
    name, one = found
    if one.totals is None:
        return {"name": name, "problem": one.problem}
    return {
        "name": name,
        "lines": one.line_count,
        "used": dollars(one.totals.subtotal_cents),
        "credit": dollars(one.totals.credit_applied_cents),
        "tax": dollars(one.totals.tax_cents),
        "total": dollars(one.totals.total_cents),
    }
