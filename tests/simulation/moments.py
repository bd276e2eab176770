"""Moments at which something begins or ends: where a comparison is off by one, it is off there."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from tests.simulation.cast import Cast

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
MINUTE = timedelta(minutes=1)
NEAR = timedelta(days=4)


def next_moment(cast: Cast) -> datetime:
    """Return the soonest moment to come at which something begins or ends."""
    return min(one for one in _moments(cast) if one > cast.now)


def month_end(cast: Cast, *, within: timedelta = NEAR) -> datetime:
    """Return the moment from which the last days of a month are closed; now, where it is far."""
    first = datetime(cast.now.year, cast.now.month, 1, tzinfo=UTC) + 31 * DAY
    end = first.replace(day=1) + HOUR + 5 * MINUTE
    return end if end - cast.now < within else cast.now


def _moments(cast: Cast) -> Iterator[datetime]:
    """Yield ends of days and of the hour that closes them, when periods to come can be asked for,
    ends of credit and of leases, and the first moments of prices."""
    midnight = cast.now.replace(hour=0, minute=0, second=0, microsecond=0) + DAY
    yield from (midnight, midnight + HOUR)
    yield from (midnight - 20 * MINUTE, midnight - 15 * MINUTE, midnight - 3 * MINUTE)
    for wish in cast.wishes.values():
        if wish.expires_at is not None:
            yield from (wish.expires_at, wish.expires_at + HOUR)
    for gateway in cast.gateways:
        for lease in gateway.leases.values():
            yield from (lease.admits_from, lease.admits_until, lease.admits_until + DAY)
    for tariff in cast.world.tariffs:
        yield from (tariff.effective_at, tariff.effective_at + 5 * MINUTE)
