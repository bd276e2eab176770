"""UTC days, as moments and as an address names them."""

from datetime import UTC, date, datetime, time

FIRST, LAST = date(1970, 1, 1), date(8999, 12, 31)
"""What an address may name: beyond them a calendar ends, and nobody was asked anything before."""


def midnight(day: date) -> datetime:
    """Return the moment that a UTC day begins."""
    return datetime.combine(day, time(), UTC)


def day_of(text: str) -> date | None:
    """Return the ISO date in `text`, None where there is none from FIRST to LAST."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return day if FIRST <= day <= LAST else None
