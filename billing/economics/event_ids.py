"""Ranges of time as ranges of event ids: a UUIDv7 begins with its millisecond."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def id_from(moment: datetime) -> UUID:
    """Return the least id of an event received at `moment`, to the millisecond."""
    return UUID(int=(moment - EPOCH) // timedelta(milliseconds=1) << 80)
