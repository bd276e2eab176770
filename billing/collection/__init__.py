"""Collecting what is overdue: charge or remind by a schedule, limit, suspend, and take it all back
the moment it is paid. Above payments and invoicing, which know nothing of it."""
