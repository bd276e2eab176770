"""The credit and the tax in a part of a payment: all parts together have its tax, to the cent."""

from django.db.models import Sum

from billing.payments.models import Dispute, StripePayment
from billing.payments.selectors import refunds_of, taken_cents


def tax_of_part(payment: StripePayment, amount_cents: int) -> int:
    """Return the tax that goes back with `amount_cents` of a payment's credit.

    Rounded half up over all parts so far, so that the last part takes what is left: with 19 of tax
    on 100, three parts of 33, 33 and 34 take 6, 7 and 6.
    """
    before_cents = taken_cents(payment.id)
    whole = _half_up(payment.tax_cents * (before_cents + amount_cents), payment.amount_cents)
    return min(max(whole - _taken_tax_cents(payment), 0), payment.tax_cents)


def credit_in_part(payment: StripePayment, part_cents: int) -> int:
    """Return the credit that goes with a part of what the customer paid; the rest of it is tax.

    Rounded half up over all parts so far: with 19 of tax on 100, three parts of 40, 40 and 39 take
    34, 33 and 33 of credit, and 6, 7 and 6 of tax.
    """
    before_cents = taken_cents(payment.id)
    all_cents = before_cents + _taken_tax_cents(payment) + part_cents
    whole = _half_up(payment.amount_cents * all_cents, payment.total_cents)
    return min(max(whole - before_cents, 0), part_cents)


def _taken_tax_cents(payment: StripePayment) -> int:
    refunded = sum(each.tax_cents for each in refunds_of(payment.id))
    gone = Dispute.objects.filter(payment=payment, reinstated_at__isnull=True)
    return refunded + int(gone.aggregate(cents=Sum("taken_tax_cents"))["cents"] or 0)


def _half_up(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)
