"""The operator's view of invoicing: who sells and to whom, tax, months, and final documents."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from billing.invoicing import documents_admin  # noqa: F401 -- its pages
from billing.invoicing.close_page import ClosePage
from billing.invoicing.models import (
    BillingProfile,
    Close,
    ExchangeRate,
    LegalEntity,
    TaxRate,
)
from billing.invoicing.printed import percent
from billing.invoicing.services.operator import (
    save_legal_entity,
    save_tax_rate,
    set_exchange_rate,
)
from billing.invoicing.services.profiles import set_billing_profile
from control.admin.base import OperatorAdmin, ReadOnlyAdmin
from control.permissions import Actor


@admin.register(LegalEntity)
class LegalEntityAdmin(OperatorAdmin):
    """Who invoices are from."""

    list_display = ("name", "country", "number_prefix", "next_invoice", "is_default")
    readonly_fields = ("next_invoice", "next_credit_note")
    fields = (
        "name", "address", "country", "region", "tax_ids", "email", "bank_details", "footer",
        "logo_svg", "tax_calculator", "number_prefix", "credit_note_prefix", "is_default",
        "next_invoice", "next_credit_note",
    )  # fmt: skip

    def add_row(self, actor: Actor, values: dict[str, Any]) -> LegalEntity:
        """Add a legal entity."""
        return save_legal_entity(actor=actor, values=values)

    def change_row(self, actor: Actor, row: Any, changes: dict[str, Any]) -> LegalEntity:
        """Change one; final documents stay as they are."""
        return save_legal_entity(actor=actor, values=changes, entity=row)


@admin.register(BillingProfile)
class BillingProfileAdmin(OperatorAdmin):
    """Whom invoices are for."""

    list_display = ("organization", "legal_name", "country", "tax_id", "terms_days")
    list_select_related = ("organization",)
    search_fields = ("organization__name", "organization__id", "legal_name", "tax_id")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Return the organization, once there is a profile of it."""
        return ("organization",) if obj else ()

    def add_row(self, actor: Actor, values: dict[str, Any]) -> BillingProfile:
        """Make a profile."""
        organization = values.pop("organization")
        return set_billing_profile(organization=organization, actor=actor, changes=values)

    def change_row(self, actor: Actor, row: Any, changes: dict[str, Any]) -> BillingProfile:
        """Change one."""
        return set_billing_profile(organization=row.organization, actor=actor, changes=changes)


@admin.register(TaxRate)
class TaxRateAdmin(OperatorAdmin):
    """What tax is added, by country and region."""

    list_display = ("country", "region", "name", "rate", "reverse_charge", "starts_on")
    list_filter = ("country",)

    @admin.display(description=_("Rate"), ordering="rate_basis_points")
    def rate(self, row: TaxRate) -> str:
        """Return the rate in percent."""
        return percent(row.rate_basis_points)

    def add_row(self, actor: Actor, values: dict[str, Any]) -> TaxRate:
        """Add a rate."""
        return save_tax_rate(actor=actor, values=values)

    def change_row(self, actor: Actor, row: Any, changes: dict[str, Any]) -> TaxRate:
        """Change a rate for the invoices to come."""
        return save_tax_rate(actor=actor, values=changes, rate=row)


@admin.register(ExchangeRate)
class ExchangeRateAdmin(OperatorAdmin):
    """Currencies that amounts are told in, beside dollars."""

    list_display = ("currency", "micros", "as_of")

    def add_row(self, actor: Actor, values: dict[str, Any]) -> ExchangeRate:
        """Set a rate."""
        return set_exchange_rate(actor=actor, **values)

    def change_row(self, actor: Actor, row: Any, changes: dict[str, Any]) -> ExchangeRate:
        """Set another."""
        held = {"currency": row.currency, "micros": row.micros, "as_of": row.as_of}
        return set_exchange_rate(actor=actor, **{**held, **changes})


@admin.register(Close)
class CloseAdmin(ReadOnlyAdmin):
    """Months that were closed, and the page that closes one."""

    list_display = ("__str__", "started_at", "run_at", "finished_at", "started_by")
    ordering = ("-starts_on",)

    def get_custom_urls(self) -> tuple[tuple[str, str, Any], ...]:
        """Return the address of the page that closes a month."""
        return (("month/", "invoicing_month", ClosePage.as_view(model_admin=self)),)
