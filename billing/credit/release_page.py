"""The operator's page on which all leases of a lost gateway are released: what that gives back is
said first."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from billing.credit.services.lost_gateways import Held, held_by, release_gateway
from control.admin.base import OperatorPage, operator
from control.admin.confirm import ReasonForm
from control.errors import ServiceError
from serving.contract.money import exact_dollars, format_dollars

ALARMS = "admin:alarms_overview"


class ReleaseGatewayPage(OperatorPage):
    """Asks once, with a reason, and releases."""

    title = _("Release a gateway")
    purpose = _(
        "Frees at once what a lost gateway's leases hold. Release a gateway only if its journal is"
        " known to be lost: events that still arrive are charged, and may exceed a limit."
    )
    permission_required = "credit.change_lease"
    template_name = "credit/release_gateway.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Say what would be released, and ask why."""
        return self._show(request.GET.get("gateway", ""), ReasonForm())

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Release it, and say what was."""
        gateway_id, form = request.GET.get("gateway", ""), ReasonForm(request.POST)
        if not form.is_valid():
            return self._show(gateway_id, form)
        try:
            released = release_gateway(
                actor=operator(request), gateway_id=gateway_id, now=timezone.now(),
                **form.cleaned_data,
            )  # fmt: skip
        except ServiceError as error:
            messages.error(request, error.message)
        else:
            messages.success(
                request,
                gettext("%(gateway)s: %(leases)s released.")
                % {"gateway": gateway_id, "leases": _words(released)},
            )
        return redirect(ALARMS)

    def _show(self, gateway_id: str, form: ReasonForm) -> HttpResponse:
        try:
            held = held_by(gateway_id, now=timezone.now())
        except ServiceError as error:
            return self.render_to_response(self.get_context_data(refusal=error.message))
        context = self.get_context_data(
            gateway_id=gateway_id,
            form=form,
            words=_words(held),
            organization_count=held.organization_count,
            held_exact=exact_dollars(held.held_nanos),
        )
        return self.render_to_response(context)


def _words(held: Held) -> str:
    words = ngettext(
        "%(count)s lease holding %(amount)s",
        "%(count)s leases holding %(amount)s",
        held.lease_count,
    )
    return words % {"count": f"{held.lease_count:,}", "amount": format_dollars(held.held_nanos)}
