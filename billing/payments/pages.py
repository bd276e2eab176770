"""The operator's page of payments: whether Stripe and the books agree, and what waits."""

from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from billing.payments.models import RefundStatus
from billing.payments.selectors import (
    last_reconciliation,
    nanos,
    open_disputes,
    open_gaps,
    open_payments_count,
    reconciliation_under_way,
    refunds_by_status,
    waiting_events_count,
)
from control.admin.base import OperatorPage, row_url
from control.organizations.selectors import organizations
from serving.contract.money import exact_dollars

SHOWN_MAX = 50


class PaymentsPage(OperatorPage):
    """How payments stand."""

    title = _("Payments")
    purpose = _(
        "Shows whether Stripe and our records agree, and what needs attention. Every night, all"
        " Stripe transactions of the last three days are compared with our records."
    )
    permission_required = "payments.view_stripepayment"
    template_name = "payments/standing.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the last look at everything, and what is open."""
        keys = settings.CONFIG.stripe
        if keys is None:
            return super().get_context_data(**kwargs, mode=None)
        return super().get_context_data(
            **kwargs,
            mode=keys.mode,
            last=last_reconciliation(keys.mode),
            under_way=reconciliation_under_way(keys.mode),
            gaps=_shown(open_gaps(keys.mode)[:SHOWN_MAX]),
            disputes=_shown(open_disputes(keys.mode)[:SHOWN_MAX]),
            waiting_count=open_payments_count(keys.mode),
            events_count=waiting_events_count(),
            refunds_count=refunds_by_status(
                keys.mode, (RefundStatus.WAITING, RefundStatus.CREATED, RefundStatus.PENDING)
            ),
        )


def _shown(rows: QuerySet[Any]) -> list[dict[str, Any]]:
    name = rows.model._meta.model_name
    ids = [row.organization_id for row in rows]
    names = dict(organizations().filter(id__in=ids).values_list("id", "name"))
    return [
        {
            "row": row,
            "owner": names.get(row.organization_id, row.organization_id),
            "amount": exact_dollars(nanos(row.amount_cents)),
            "url": row_url(f"admin:payments_{name}_change", row.pk),
        }
        for row in rows
    ]
