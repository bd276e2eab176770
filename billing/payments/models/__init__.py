"""What payments are made of. Amounts are whole cents of US dollars; `mode` (live or test) is that
of the key a row was made with, and rows of two modes never meet."""

from billing.payments.models.automatic import AutoTopUp
from billing.payments.models.codes import PromotionalCode, Redemption
from billing.payments.models.customers import Mode, PaymentMethod, StripeCustomer
from billing.payments.models.inbox import StripeEvent
from billing.payments.models.payments import (
    FINAL,
    OPEN,
    RANK,
    PaymentStatus,
    Purpose,
    StripePayment,
)
from billing.payments.models.reconciling import Gap, GapKind, Reconciliation
from billing.payments.models.returned import Dispute, Refund, RefundStatus

__all__ = [
    "FINAL",
    "OPEN",
    "RANK",
    "AutoTopUp",
    "Dispute",
    "Gap",
    "GapKind",
    "Mode",
    "PaymentMethod",
    "PaymentStatus",
    "PromotionalCode",
    "Purpose",
    "Reconciliation",
    "Redemption",
    "Refund",
    "RefundStatus",
    "StripeCustomer",
    "StripeEvent",
    "StripePayment",
]
