"""The Django app of invoicing."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from control.permissions import Permission


class InvoicingConfig(AppConfig):
    """Billing profiles, tax, the month's close, invoices and credit notes."""

    name = "billing.invoicing"
    label = "invoicing"
    verbose_name = _("Invoicing")
    deliveries = "billing.invoicing.deliveries"
    change_permission = Permission.FINANCE_WRITE
    append_only = (
        "invoicing_invoice",
        "invoicing_invoice_line",
        "invoicing_invoice_payment",
        "invoicing_credit_note",
        "invoicing_credit_note_line",
    )
    checks = "billing.invoicing.integrity"

    def ready(self) -> None:
        """Settle invoices in the transactions that pay debts."""
        from billing.invoicing import following_payments

        following_payments.listen()
