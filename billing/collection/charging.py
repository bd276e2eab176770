"""Charging what is due where a method is saved; Stripe is asked once the transaction commits."""

from datetime import datetime

from billing.collection.selectors import Debt
from billing.payments.errors import NoStripe
from billing.payments.services import charge_invoice
from control.errors import Conflict, InvalidValue


def charge(due: Debt, *, now: datetime) -> int:
    """Ask for each due invoice with the default method; return how many payments are under way.

    None are where Stripe is off, no method is saved, or an amount is less than Stripe charges.
    """
    asked_count = 0
    for one in due.due:
        try:
            charge_invoice(one.invoice.id, now=now)
        except (NoStripe, InvalidValue, Conflict):
            continue
        asked_count += 1
    return asked_count
