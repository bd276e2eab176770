"""The operator's view of credit: grants are added, once per form; leases are looked at."""

import uuid
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from billing.credit.models import CreditGrant, GrantKind, Lease
from billing.credit.services.grants import grant_credit
from control.actor import Actor
from control.operator_admin import OperatorAdmin, ReadOnlyAdmin
from control.operator_fields import dollars
from control.tenants.selectors import organizations
from serving.contract.money import exact_dollars, parse_dollars


def new_form_id() -> str:
    """Return what a freshly opened form is known by: sent twice, it grants once."""
    return f"admin:{uuid.uuid4()}"


class GrantForm(forms.ModelForm):
    """A grant as the operator types it, in dollars."""

    organization = forms.ModelChoiceField(organizations(), widget=UnfoldAdminSelectWidget)
    amount = forms.CharField(
        widget=UnfoldAdminTextInputWidget, help_text="In dollars, such as 25 or 0.50."
    )

    class Meta:
        model = CreditGrant
        fields = ("organization", "kind", "amount", "expires_at", "reason", "idempotency_key")
        widgets = {"idempotency_key": forms.HiddenInput}

    def clean_amount(self) -> int:
        """Return the amount in nanos."""
        try:
            return parse_dollars(self.cleaned_data["amount"])
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error


@admin.register(CreditGrant)
class CreditGrantAdmin(OperatorAdmin):
    """Credit grants."""

    form = GrantForm
    list_display = (
        "organization_id", "kind", "amount", "remaining", "expires_at", "reason", "granted_by",
        "granted_at",
    )  # fmt: skip
    list_filter = ("kind",)
    list_select_related = ("account",)
    search_fields = ("organization_id", "id", "reason")
    ordering = ("-granted_at",)

    amount = dollars("amount_nanos", "Amount")

    @admin.display(ordering="-account__balance_nanos")
    def remaining(self, grant: CreditGrant) -> str:
        """Return what is left."""
        return exact_dollars(grant.remaining_nanos)

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Return what a fresh form holds."""
        return {"kind": GrantKind.PREPAID, "idempotency_key": new_form_id()}

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """A grant is never changed."""
        return False

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the form's fields, or all columns of a grant that was made."""
        if obj is None:
            return [(None, {"fields": GrantForm.Meta.fields})]
        columns = [field.name for field in CreditGrant._meta.concrete_fields]
        columns.remove("amount_nanos")
        return [(None, {"fields": ["amount", "remaining", *columns]})]

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


@admin.register(Lease)
class LeaseAdmin(ReadOnlyAdmin):
    """Money set aside for gateways."""

    list_display = (
        "granted_at", "gateway_id", "budget_id", "granted", "settled", "held", "expires_at",
        "closed_at", "voided_at",
    )  # fmt: skip
    search_fields = ("gateway_id", "organization_id", "budget_id")
    fields = (
        "id", "organization_id", "budget", "gateway_id", "granted", "settled", "held",
        "granted_at", "expires_at", "recalled_at", "closed_at", "voided_at",
    )  # fmt: skip
    readonly_fields = fields
    ordering = ("-granted_at",)

    granted = dollars("granted_nanos", "Granted")
    settled = dollars("settled_nanos", "Settled")

    @admin.display(description="Held")
    def held(self, lease: Lease) -> str:
        """Return what it still holds."""
        return exact_dollars(lease.held_nanos)
