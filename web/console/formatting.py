"""Number and time formats for people. Billing formats money."""

from datetime import UTC, datetime

from django.utils.translation import gettext, ngettext

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR
NONE = "\N{EN DASH}"
"""Shown in place of a missing value."""
SIZES = ((10**9, "B"), (10**6, "M"), (10**3, "K"))


def count(number: int) -> str:
    """Return a whole number with thousands separators."""
    return f"{number:,}"


def compact(number: int) -> str:
    """Return a large number with three digits: 1,234,567 is 1.23M. Exact below 10,000."""
    if number < 10_000:
        return count(number)
    size, unit = next(step for step in SIZES if number >= step[0] - step[0] // 2000)
    digits = max(3 - len(str(round(number / size))), 0)
    return f"{number / size:.{digits}f}{unit}"


def duration(seconds: float | None) -> str:
    """Return a duration such as 9 ms or 1.24 s; a dash for None."""
    if seconds is None:
        return NONE
    if seconds < 0.01:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:.0f} s"


def moment(at: datetime) -> str:
    """Return a full UTC timestamp."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def ago(at: datetime, now: datetime) -> str:
    """Return the time since, or until, a timestamp."""
    seconds = (now - at).total_seconds()
    if abs(seconds) < MINUTE:
        return gettext("just now") if seconds >= 0 else gettext("in a moment")
    size = next(size for size in (DAY, HOUR, MINUTE) if abs(seconds) >= size)
    number = int(abs(seconds) // size)
    words = _past(size, number) if seconds > 0 else _future(size, number)
    return words % {"number": number}


def _past(size: int, number: int) -> str:
    if size == DAY:
        return ngettext("%(number)d day ago", "%(number)d days ago", number)
    if size == HOUR:
        return ngettext("%(number)d hour ago", "%(number)d hours ago", number)
    return ngettext("%(number)d minute ago", "%(number)d minutes ago", number)


def _future(size: int, number: int) -> str:
    if size == DAY:
        return ngettext("in %(number)d day", "in %(number)d days", number)
    if size == HOUR:
        return ngettext("in %(number)d hour", "in %(number)d hours", number)
    return ngettext("in %(number)d minute", "in %(number)d minutes", number)


def percent(share: float) -> str:
    """Return a fraction in percent: 0.973 is 97.3 %."""
    return f"{share * 100:.3g} %" if share < 1 else "100 %"
