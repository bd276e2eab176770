"""The operator's view of payments: what came in and went back, what does not fit, codes."""

from functools import partial
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import action
from unfold.widgets import UnfoldAdminSelectWidget

from billing.payments.models import (
    Dispute,
    Gap,
    GapKind,
    PromotionalCode,
    Reconciliation,
    Refund,
    RefundStatus,
    StripeEvent,
    StripePayment,
)
from billing.payments.pages import PaymentsPage
from billing.payments.selectors import gap, nanos, payment_by_id
from billing.payments.services.codes import end_code, make_code, spelled
from billing.payments.services.refunding import refund_payment, refundable_cents
from billing.payments.services.unmatched import credit_gap, dismiss_gap
from control.admin.base import OperatorAdmin, ReadOnlyAdmin
from control.admin.confirm import AmountForm, Confirmation, ReasonForm, confirm
from control.admin.fields import DollarsField, displayed, dollars
from control.errors import InvalidValue
from control.organizations.admin import OrganizationOwnedAdmin
from control.organizations.selectors import organizations
from control.permissions import Actor
from serving.contract.money import CENT_NANOS, exact_dollars

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

HELD = _(
    "Gateways hold part of this credit for requests. It was recalled: the refund is made as soon as"
    " it is free, within seconds while nothing is being used."
)
CHECKED = {"asked_at": _("Requested at"), "looked_at": _("Last checked")}


def in_dollars(attribute: str, title: "StrOrPromise") -> Any:
    """Return a column that shows cents as dollars."""

    @admin.display(description=title, ordering=attribute)
    def column(self: object, row: object) -> str:
        return exact_dollars(nanos(getattr(row, attribute)))

    return column


def refund_in_nanos(*, request: HttpRequest, amount_nanos: int, **asked: Any) -> Refund:
    """Refund what the form says, in whole cents, and say where it has to wait. Raises
    InvalidValue."""
    if amount_nanos % CENT_NANOS:
        raise InvalidValue(gettext("Refunds are made in whole cents."), param="amount_nanos")
    refund = refund_payment(amount_cents=amount_nanos // CENT_NANOS, **asked)
    if refund.status == RefundStatus.WAITING:
        messages.info(request, HELD)
    return refund


@admin.register(StripePayment)
class StripePaymentAdmin(OrganizationOwnedAdmin, ReadOnlyAdmin):
    """Payments through Stripe."""

    list_display = (
        "created_at", "owner", "purpose", "amount", "tax", "status", "failure_code",
        "method", "mode",
    )  # fmt: skip
    list_filter = ("status", "purpose", "mode")
    list_select_related = ("method",)
    search_fields = ("=id", "=organization_id", "=intent_id", "=checkout_id", "=invoice_id")
    ordering = ("-created_at",)
    fields = (
        "id", "owner", "purpose", "invoice_id", "amount", "tax", "status", "method",
        "failure_code", "failure_words", "stripe_words", "requested_by", "created_at",
        "asked_at", "looked_at", "settled_at", "payment_id", "intent_id", "checkout_id",
        "receipt_url", "idempotency_key", "mode",
    )  # fmt: skip
    readonly_fields = fields
    column_labels = CHECKED
    actions_detail = ("refund",)

    amount = in_dollars("amount_cents", _("Amount"))
    tax = in_dollars("tax_cents", _("Tax"))

    def has_refund_permission(self, request: HttpRequest, object_id: str) -> bool:
        """Only what came in and is not all paid back goes back, by who may."""
        may = request.user.has_perm("payments.change_stripepayment")
        payment = payment_by_id(unquote(object_id))
        return may and payment.payment_id is not None and refundable_cents(payment.id) > 0

    @action(description=_("Refund"), permissions=["refund"])
    def refund(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Pay credit back to where it came from."""
        payment = payment_by_id(unquote(object_id))
        left = exact_dollars(nanos(refundable_cents(payment.id)))
        words = gettext(
            "Up to %(amount)s of this payment go back to where they came from, with their share of"
            " the tax, as far as the credit is not spent."
        )
        if payment.method:
            words = gettext(
                "Up to %(amount)s of this payment go back to %(method)s, with their share of the"
                " tax, as far as the credit is not spent."
            )
        words %= {"amount": left, "method": payment.method}
        verb = partial(refund_in_nanos, request=request, payment_id=payment.id, now=timezone.now())
        return confirm(self, request, payment, Confirmation(_("Refund"), words, AmountForm, verb))

    def get_custom_urls(self) -> tuple[tuple[str, str, Any], ...]:
        """Return the address of the page of how payments stand."""
        page = PaymentsPage.as_view(model_admin=self)
        return (("standing/", "payments_standing", page),)


@admin.register(Refund)
class RefundAdmin(OrganizationOwnedAdmin, ReadOnlyAdmin):
    """What went back, or is on its way."""

    list_display = (
        "created_at", "owner", "payment", "amount", "tax", "status", "reason",
        "requested_by", "failure_words",
    )  # fmt: skip
    list_filter = ("status", "mode")
    search_fields = ("=id", "=organization_id", "=stripe_id", "=payment__id")
    ordering = ("-created_at",)
    fields = (
        "id", "owner", "payment", "amount", "tax", "status", "reason", "requested_by",
        "failure_words", "created_at", "asked_at", "looked_at", "settled_at", "stripe_id",
        "idempotency_key", "mode",
    )  # fmt: skip
    readonly_fields = fields
    column_labels = CHECKED

    amount = in_dollars("amount_cents", _("Amount"))
    tax = in_dollars("tax_cents", _("Tax"))


@admin.register(Dispute)
class DisputeAdmin(OrganizationOwnedAdmin, ReadOnlyAdmin):
    """Payments that a customer's bank asks back; evidence is given in Stripe's dashboard."""

    list_display = (
        "opened_at", "owner", "payment", "amount", "status", "reason", "due_by",
        "withdrawn_at", "reinstated_at", "closed_at",
    )  # fmt: skip
    list_filter = ("status", ("closed_at", admin.EmptyFieldListFilter))
    search_fields = ("=stripe_id", "=organization_id", "=payment__id")
    ordering = ("-opened_at",)
    fields = (
        "stripe_id", "owner", "payment", "amount", "taken", "status", "reason", "due_by",
        "opened_at", "withdrawn_at", "reinstated_at", "closed_at", "mode",
    )  # fmt: skip
    readonly_fields = fields

    amount = in_dollars("amount_cents", _("Amount"))
    taken = in_dollars("taken_cents", _("Credit withdrawn"))


class CreditForm(ReasonForm):
    """Whose payment it is."""

    organization = forms.ModelChoiceField(
        organizations(), label=_("Organization"), widget=UnfoldAdminSelectWidget
    )
    field_order = ("organization", "reason")


def credit_as(*, organization: Any, **asked: Any) -> Gap:
    """Credit an unmatched payment to the organization chosen."""
    return credit_gap(organization_id=organization.id, **asked)


@admin.register(Gap)
class GapAdmin(OrganizationOwnedAdmin, ReadOnlyAdmin):
    """What Stripe and our ledger say differently."""

    list_display = (
        "seen_at", "kind", "words", "owner", "amount", "reference", "closed_at",
    )  # fmt: skip
    list_filter = (("closed_at", admin.EmptyFieldListFilter), "kind", "mode")
    search_fields = ("=reference", "=organization_id")
    ordering = ("-seen_at",)
    fields = (
        "kind", "reference", "owner", "amount", "currency", "words", "seen_at",
        "closed_at", "closed_by", "closed_because", "mode",
    )  # fmt: skip
    readonly_fields = fields
    actions_detail = ("credit", "dismiss")

    amount = in_dollars("amount_cents", _("Amount"))

    def has_dismiss_permission(self, request: HttpRequest, object_id: str) -> bool:
        """Only what is open is closed, by who may."""
        return request.user.has_perm("payments.change_gap") and gap(int(object_id)).is_open

    def has_credit_permission(self, request: HttpRequest, object_id: str) -> bool:
        """Only money that came is credited."""
        is_payment = gap(int(object_id)).kind in (GapKind.UNKNOWN_PAYMENT, GapKind.UNLIKE_PAYMENT)
        return is_payment and self.has_dismiss_permission(request, object_id)

    @action(description=_("Credit to an organization"), permissions=["credit"])
    def credit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Book a payment that nobody asked for."""
        row = gap(int(object_id))
        amount = exact_dollars(nanos(row.amount_cents))
        words = gettext(
            "%(amount)s came in. They pay what the organization owes; the rest becomes credit."
        ) % {"amount": amount}
        verb = partial(credit_as, gap_id=row.pk, now=timezone.now())
        return confirm(self, request, row, Confirmation(_("Credit"), words, CreditForm, verb))

    @action(description=_("Dismiss"), permissions=["dismiss"])
    def dismiss(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Close what needs nothing booked."""
        row = gap(int(object_id))
        words = _("Nothing is posted to the ledger. This entry does not come back by itself.")
        verb = partial(dismiss_gap, gap_id=row.pk, now=timezone.now())
        return confirm(self, request, row, Confirmation(_("Dismiss"), words, ReasonForm, verb))


@admin.register(Reconciliation)
class ReconciliationAdmin(ReadOnlyAdmin):
    """The nightly comparisons with Stripe."""

    list_display = (
        "began_at", "ended_at", "starts_at", "ends_at", "transactions", "updated", "unmatched",
        "mode",
    )  # fmt: skip
    column_labels = {
        "movement_count": _("Stripe transactions"),
        "healed_count": _("Updated"),
        "gap_count": _("Unmatched"),
    }
    ordering = ("-began_at",)

    transactions = displayed("movement_count", _("Stripe transactions"), ordering="movement_count")
    updated = displayed("healed_count", _("Updated"), ordering="healed_count")
    unmatched = displayed("gap_count", _("Unmatched"), ordering="gap_count")


@admin.register(StripeEvent)
class StripeEventAdmin(ReadOnlyAdmin):
    """Webhooks as they came."""

    list_display = (
        "received_at", "type", "object_id", "attempt_count", "processed_at", "problem", "mode",
    )  # fmt: skip
    list_filter = (("processed_at", admin.EmptyFieldListFilter), "object_kind", "mode")
    search_fields = ("=event_id", "=object_id", "=type")
    ordering = ("-received_at",)
    show_full_result_count = False
    fields = (
        "event_id", "type", "object_kind", "object_id", "api_version", "received_at", "due_at",
        "attempt_count", "processed_at", "problem", "content", "mode",
    )  # fmt: skip
    readonly_fields = fields

    @admin.display(description=_("Body"))
    def content(self, event: StripeEvent) -> str:
        """Return the body as it came."""
        return bytes(event.body).decode(errors="replace")


class CodeForm(forms.ModelForm):
    """A new code."""

    amount = DollarsField(label=_("Amount"), help_text=_("In dollars, such as 25 or 0.50."))

    class Meta:
        model = PromotionalCode
        fields = ("code", "amount", "credit_days", "expires_at", "redemptions_max")

    def clean_code(self) -> str:
        """Return the code as it is kept."""
        return spelled(self.cleaned_data["code"])


@admin.register(PromotionalCode)
class PromotionalCodeAdmin(OperatorAdmin):
    """Promotional codes."""

    form = CodeForm
    list_display = (
        "code", "worth", "credit_days", "expires_at", "redemption_count", "redemptions_max",
        "ended_at", "created_by", "created_at",
    )  # fmt: skip
    search_fields = ("code",)
    ordering = ("-created_at",)
    actions = ("end",)

    worth = dollars("amount_nanos", _("Amount"))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """What was promised is not changed; the list's action ends it."""
        return obj is None and bool(request.user.has_perm("payments.change_promotionalcode"))

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the form's fields, or all columns of a code that was made."""
        if obj is None:
            return [(None, {"fields": CodeForm.Meta.fields})]
        columns = [field.name for field in PromotionalCode._meta.concrete_fields]
        return [(None, {"fields": ["worth", *(n for n in columns if not n.endswith("_nanos"))]})]

    def add_row(self, actor: Actor, values: dict[str, Any]) -> PromotionalCode:
        """Make the code."""
        return make_code(
            actor=actor,
            code=values.get("code", ""),
            amount_nanos=values.get("amount") or 0,
            credit_days=values.get("credit_days"),
            expires_at=values.get("expires_at"),
            redemptions_max=values.get("redemptions_max"),
            now=timezone.now(),
        )

    @admin.action(description=_("End now"), permissions=["change"])
    def end(self, request: HttpRequest, queryset: Any) -> None:
        """Let nobody redeem the selected codes any more."""
        self.carry_out(
            request, queryset, _("%(row)s has ended."),
            lambda actor, row: end_code(code=row.code, actor=actor, now=timezone.now()),
        )  # fmt: skip
