"""What credit tells the rooms above it, inside the transaction that does it: a receiver that raises
undoes it all. The organization's balance is locked."""

from django.dispatch import Signal

payment_recorded = Signal()
"""A payment was booked: `organization_id`, `payment_id`, `now`."""
receivables_changed = Signal()
"""Debts were paid with credit, given up or owed again: `organization_ids`, `now`."""
