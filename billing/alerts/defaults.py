"""What organizations are told that chose nothing else."""

PERCENTS = (50, 80, 100)
"""Of every budget."""
PACE_DAYS = 7
"""The pace of spending is that of so many days, today among them."""
LOW_RUNWAY_DAYS = 3
"""The balance lasts no longer than this at that pace."""
UNUSUAL_FACTOR = 3
UNUSUAL_DAYS_MIN = 7
"""Fewer days with spending among the last 28 say nothing of what is usual."""
UNUSUAL_NANOS_MIN = 1_000_000_000
"""A dollar: below it, no spending is worth a mail."""
EXPIRY_NOTICE_DAYS = 7
"""How long before credit expires its notice is sent."""
