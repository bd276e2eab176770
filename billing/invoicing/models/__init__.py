"""What invoicing keeps: who bills whom and how, the final documents, what was paid of them, and how
far closing a month came."""

from billing.invoicing.models.closes import Close, CloseFailure
from billing.invoicing.models.documents import CreditNote, CreditNoteLine, Invoice, InvoiceLine
from billing.invoicing.models.parties import (
    BillingProfile,
    ExchangeRate,
    LegalEntity,
    Paper,
    TaxRate,
)
from billing.invoicing.models.standing import Dispute, InvoicePayment

__all__ = [
    "BillingProfile",
    "Close",
    "CloseFailure",
    "CreditNote",
    "CreditNoteLine",
    "Dispute",
    "ExchangeRate",
    "Invoice",
    "InvoiceLine",
    "InvoicePayment",
    "LegalEntity",
    "Paper",
    "TaxRate",
]
