"""Number and time formats for people. Billing formats money."""

from datetime import UTC, datetime

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR
NONE = "\N{EN DASH}"
"""Shown in place of a missing value."""
SIZES = ((10**9, "B"), (10**6, "M"), (10**3, "K"))
STEPS = ((DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"))


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
        return "just now" if seconds >= 0 else "in a moment"
    size, unit = next(step for step in STEPS if abs(seconds) >= step[0])
    number = int(abs(seconds) // size)
    words = f"{number} {unit}{'' if number == 1 else 's'}"
    return f"{words} ago" if seconds > 0 else f"in {words}"


def percent(share: float) -> str:
    """Return a fraction in percent: 0.973 is 97.3 %."""
    return f"{share * 100:.3g} %" if share < 1 else "100 %"
