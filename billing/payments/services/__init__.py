"""What changes payments. Each verb is one transaction: the row, its audit row, and in the outbox
what Stripe must be asked; Stripe is never spoken to inside one."""

from billing.payments.services.asking import start_checkout, top_up
from billing.payments.services.invoices import charge_invoice, start_invoice_checkout
from billing.payments.services.refunding import refund_payment

__all__ = [
    "charge_invoice",
    "refund_payment",
    "start_checkout",
    "start_invoice_checkout",
    "top_up",
]
