"""What payments tell the rooms above them, inside the transaction that decides it."""

from django.dispatch import Signal

payment_failed = Signal()
"""A payment that was asked off-session or with a saved method was declined: `payment`
(StripePayment) and `now`."""
payment_succeeded = Signal()
"""Money came: `payment` (StripePayment) and `now`; it is in the books already."""
payment_returned = Signal()
"""A payment, or part of it, was paid back at Stripe and not by us: `refund` (Refund) and `now`."""
top_up_stopped = Signal()
"""Two declines in a row stopped automatic top-ups: `settings` (AutoTopUp) and `now`."""
dispute_changed = Signal()
"""A dispute was opened, its money moved, or it was decided: `dispute` (Dispute) and `now`."""
