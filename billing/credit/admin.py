"""The operator's view of credit: budgets and leases to look at, grants and payments to make once
per form, and what puts things right, each with a reason and through its service."""

from functools import partial
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import action
from unfold.widgets import UnfoldAdminSelectWidget

from billing.credit.models import (
    Budget,
    BudgetKind,
    CreditGrant,
    GrantKind,
    GrantState,
    Lease,
    Payment,
)
from billing.credit.release_page import ReleaseGatewayPage
from billing.credit.selectors import budget_by_row, grant_with_account, lease
from billing.credit.services.adjustments import issue_credit_note, refund_or_recall, write_off
from billing.credit.services.grants import grant_credit, reverse_grant
from billing.credit.services.leases import acknowledge_overrun, release_lease
from billing.credit.services.payments import record_payment
from control.admin.base import OperatorAdmin, ReadOnlyAdmin
from control.admin.confirm import AmountForm, Confirmation, ReasonForm, confirm, new_form_id
from control.admin.fields import NOTHING, DollarsField, displayed, dollars
from control.organizations.selectors import organizations
from control.permissions import Actor
from serving.contract.money import exact_dollars

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise


class MoneyForm(forms.ModelForm):
    """Money for an organization as the operator types it, in dollars, once per form."""

    organization = forms.ModelChoiceField(
        organizations(), label=_("Organization"), widget=UnfoldAdminSelectWidget
    )
    amount = DollarsField(label=_("Amount"), help_text=_("In dollars, such as 25 or 0.50."))


class GrantForm(MoneyForm):
    """A grant."""

    class Meta:
        model = CreditGrant
        fields = ("organization", "kind", "amount", "expires_at", "reason", "idempotency_key")
        widgets = {"idempotency_key": forms.HiddenInput}


class PaymentForm(MoneyForm):
    """A payment that came in outside of any provider, by bank transfer say."""

    tax = DollarsField(
        label=_("Tax"),
        required=False,
        help_text=_("In dollars, included in the amount. Tax never becomes credit."),
    )

    class Meta:
        model = Payment
        fields = ("organization", "amount", "tax", "reason", "idempotency_key")
        widgets = {"idempotency_key": forms.HiddenInput}


class OnceAdmin(OperatorAdmin):
    """Rows that are made once per form and never changed."""

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Return what a fresh form holds."""
        return {"idempotency_key": new_form_id()}

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """What was made is never changed."""
        return False


@admin.register(CreditGrant)
class CreditGrantAdmin(OnceAdmin):
    """Credit grants."""

    form = GrantForm
    list_display = (
        "organization_id", "kind", "state", "amount", "remaining", "expires_at", "reason",
        "granted_by", "granted_at",
    )  # fmt: skip
    list_filter = ("kind",)
    list_select_related = ("account",)
    search_fields = ("organization_id", "id", "reason")
    ordering = ("-granted_at",)
    actions_detail = ("reverse",)

    amount = dollars("amount_nanos", _("Amount"))
    expired = dollars("expired_nanos", _("Expired"))

    @admin.display(description=_("State"))
    def state(self, grant: CreditGrant) -> str:
        """Return whether it may be spent."""
        return str(grant.state(timezone.now()).label)

    @admin.display(description=_("Remaining"), ordering="-account__balance_nanos")
    def remaining(self, grant: CreditGrant) -> str:
        """Return what is left."""
        return exact_dollars(grant.remaining_nanos)

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Return what a fresh form holds."""
        return {"kind": GrantKind.PREPAID, **super().get_changeform_initial_data(request)}

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the form's fields, or all columns of a grant that was made."""
        if obj is None:
            return [(None, {"fields": GrantForm.Meta.fields})]
        columns = [field.name for field in CreditGrant._meta.concrete_fields]
        shown = [name for name in columns if not name.endswith("_nanos")]
        return [(None, {"fields": ["state", "amount", "remaining", "expired", *shown]})]

    def add_row(self, actor: Actor, values: dict[str, Any]) -> CreditGrant:
        """Give the credit."""
        return grant_credit(
            actor=actor,
            organization_id=values["organization"].id,
            kind=GrantKind(values.get("kind", GrantKind.PREPAID)),
            amount_nanos=values["amount"],
            idempotency_key=values.get("idempotency_key", ""),
            reason=values.get("reason", ""),
            expires_at=values.get("expires_at"),
            now=timezone.now(),
        )

    def has_reverse_permission(self, request: HttpRequest, object_id: str) -> bool:
        """Only what may still be spent is taken back, by who may."""
        may = request.user.has_perm("credit.change_creditgrant")
        grant = grant_with_account(unquote(object_id))
        return may and grant.state(timezone.now()) == GrantState.ACTIVE

    @action(description=_("Reverse"), permissions=["reverse"])
    def reverse(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Take back what is left of a grant that was given by mistake."""
        grant = grant_with_account(unquote(object_id))
        words = gettext("The %(amount)s left of this grant is withdrawn.")
        words %= {"amount": exact_dollars(grant.remaining_nanos)}
        verb = partial(reverse_grant, grant_id=grant.id, now=timezone.now())
        return confirm(self, request, grant, Confirmation(_("Reverse"), words, ReasonForm, verb))


@admin.register(Payment)
class PaymentAdmin(OnceAdmin):
    """Payments received."""

    form = PaymentForm
    list_display = (
        "organization_id", "amount", "tax", "settled", "reason", "recorded_by", "received_at",
    )  # fmt: skip
    search_fields = ("organization_id", "id", "reason")
    ordering = ("-received_at",)

    amount = dollars("amount_nanos", _("Amount"))
    tax = dollars("tax_nanos", _("Tax"))
    settled = dollars("settled_nanos", _("Debt paid"))

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the form's fields, or all columns of a payment that was recorded."""
        if obj is None:
            return [(None, {"fields": PaymentForm.Meta.fields})]
        columns = [field.name for field in Payment._meta.concrete_fields]
        shown = [name for name in columns if not name.endswith("_nanos")]
        return [(None, {"fields": ["amount", "tax", "settled", *shown]})]

    def add_row(self, actor: Actor, values: dict[str, Any]) -> Payment:
        """Record the payment."""
        return record_payment(
            actor=actor,
            organization_id=values["organization"].id,
            amount_nanos=values["amount"],
            tax_nanos=values.get("tax") or 0,
            idempotency_key=values.get("idempotency_key", ""),
            reason=values.get("reason", ""),
            now=timezone.now(),
        )


REFUND = _("Prepaid credit is paid back, as far as it is unspent and not held by gateways.")
WRITE_OFF = _("The debt is written off; the balance rises by the amount.")
CREDIT_NOTE = _(
    "Revenue is reversed: it settles debt first, and the rest becomes prepaid credit. To credit"
    " what is on an invoice, issue a credit note on the invoice's page: it comes with a document."
)


@admin.register(Budget)
class BudgetAdmin(ReadOnlyAdmin):
    """What may be spent: balances, and limits by the month."""

    list_display = (
        "organization_id", "budget_id", "kind", "starts_at", "balance", "posted", "pending",
        "limit",
    )  # fmt: skip
    list_filter = ("kind",)
    search_fields = ("organization_id", "budget_id")
    fields = (
        "id", "organization_id", "budget_id", "kind", "starts_at", "ends_at", "balance", "funded",
        "posted", "pending", "limit", "credit_limit", "is_credit_limit_suspended",
    )  # fmt: skip
    readonly_fields = fields
    ordering = ("-starts_at", "budget_id")
    actions_detail = ("refund", "write_off", "credit_note")

    funded = dollars("funded_nanos", _("Funded"))
    posted = dollars("posted_nanos", _("Posted"))
    pending = dollars("pending_nanos", _("Pending"))
    limit = dollars("limit_nanos", _("Limit"))
    credit_limit = dollars("credit_limit_nanos", _("Credit limit"))

    @admin.display(description=_("Balance"), ordering=F("funded_nanos") - F("posted_nanos"))
    def balance(self, row: Budget) -> str:
        """Return what is left of a balance; a debt is below zero."""
        is_balance = row.kind == BudgetKind.BALANCE
        return exact_dollars(row.balance_nanos) if is_balance else NOTHING

    def has_adjust_permission(self, request: HttpRequest, object_id: str) -> bool:
        """Only a balance is put right, by who may."""
        may = request.user.has_perm("credit.change_budget")
        return may and budget_by_row(int(object_id)).kind == BudgetKind.BALANCE

    @action(description=_("Refund"), permissions=["adjust"])
    def refund(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Pay prepaid credit back."""
        return self._adjust(request, object_id, _("Refund"), REFUND, refund_or_recall)

    @action(description=_("Write off"), permissions=["adjust"])
    def write_off(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give up a debt."""
        return self._adjust(request, object_id, _("Write off"), WRITE_OFF, write_off)

    @action(description=_("Issue credit note"), permissions=["adjust"])
    def credit_note(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give revenue back."""
        title = _("Issue credit note")
        return self._adjust(request, object_id, title, CREDIT_NOTE, issue_credit_note)

    def _adjust(
        self,
        request: HttpRequest,
        object_id: str,
        title: "StrOrPromise",
        words: "StrOrPromise",
        verb: Any,
    ) -> HttpResponse:
        row = budget_by_row(int(object_id))
        verb = partial(verb, organization_id=row.organization_id, now=timezone.now())
        return confirm(self, request, row, Confirmation(title, words, AmountForm, verb))


@admin.register(Lease)
class LeaseAdmin(ReadOnlyAdmin):
    """Money set aside for gateways."""

    list_display = (
        "granted_at", "gateway_id", "organization_id", "granted", "settled", "held",
        "admits_until", "closed_at", "voided_at", "acknowledged",
    )  # fmt: skip
    list_filter = (("overrun_seen_at", admin.EmptyFieldListFilter),)
    search_fields = ("gateway_id", "organization_id", "ask_id")
    fields = (
        "id", "organization_id", "budget", "gateway_id", "granted", "settled", "held",
        "granted_at", "admits_from", "admits_until", "recalled_at", "stopped_at", "closed_at",
        "voided_at", "overrun_seen_at", "lineage",
    )  # fmt: skip
    readonly_fields = fields
    column_labels = {
        "lineage": _("Database identity"),
        "overrun_seen_at": _("Overrun acknowledged at"),
    }
    ordering = ("-granted_at",)
    actions_detail = ("release", "acknowledge")

    def get_custom_urls(self) -> tuple[tuple[str, str, Any], ...]:
        """Return the address of the release of a silent gateway."""
        page = ReleaseGatewayPage.as_view(model_admin=self)
        return (("release-gateway/", "credit_release_gateway", page),)

    granted = dollars("granted_nanos", _("Granted"))
    settled = dollars("settled_nanos", _("Settled"))
    acknowledged = displayed(
        "overrun_seen_at", _("Overrun acknowledged at"), ordering="overrun_seen_at"
    )

    @admin.display(description=_("Held"))
    def held(self, row: Lease) -> str:
        """Return what it still holds."""
        return exact_dollars(row.held_nanos)

    def has_release_permission(self, request: HttpRequest, object_id: str) -> bool:
        """Only an open lease holds anything, and not everybody may give that back."""
        may = request.user.has_perm("credit.change_lease")
        return may and lease(int(object_id)).closed_at is None

    def has_acknowledge_permission(self, request: HttpRequest, object_id: str) -> bool:
        """Only what took more than it was granted is looked into, by who may say so."""
        if not request.user.has_perm("credit.change_lease"):
            return False
        row = lease(int(object_id))
        return row.settled_nanos > row.granted_nanos and row.overrun_seen_at is None

    @action(description=_("Release"), permissions=["release"])
    def release(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give back what a lease holds whose gateway's journal is known to be lost."""
        row = lease(int(object_id))
        words = gettext("%(amount)s are free again. Events that still arrive are recorded.")
        words %= {"amount": exact_dollars(row.held_nanos)}
        verb = partial(release_lease, lease_id=row.pk, now=timezone.now())
        return confirm(self, request, row, Confirmation(_("Release"), words, ReasonForm, verb))

    @action(description=_("Acknowledge overrun"), permissions=["acknowledge"])
    def acknowledge(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Note that a person looked into a lease that took more than it was granted."""
        row = lease(int(object_id))
        over = exact_dollars(row.settled_nanos - row.granted_nanos)
        words = gettext("This lease took %(amount)s more than it was granted.") % {"amount": over}
        verb = partial(acknowledge_overrun, lease_id=row.pk, now=timezone.now())
        return confirm(self, request, row, Confirmation(_("Acknowledge"), words, ReasonForm, verb))
