"""How long an endpoint asks to be left alone: `Retry-After` of its answer (RFC 9110, 10.2.3)."""

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

BUSY = (429, 503)
"""The answers that may name when to come again."""
DIGITS_MAX = 9


def asked_to_wait(status: int, retry_after: str, now: datetime) -> timedelta | None:
    """Return the wait that an answer asks for, in seconds or until a date; None where it asks for
    none that can be read. A date that is past asks for none either."""
    text = retry_after.strip()
    if status not in BUSY or not text:
        return None
    if text.isascii() and text.isdecimal():
        return timedelta(seconds=int(text)) if len(text) <= DIGITS_MAX else None
    try:
        until = parsedate_to_datetime(text)
        wait = (until if until.tzinfo else until.replace(tzinfo=UTC)) - now
    except (ValueError, OverflowError):
        return None
    return wait if wait > timedelta() else None
