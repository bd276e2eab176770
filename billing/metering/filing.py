"""What went wrong with a batch, kept for a person: dead letters, and counts of alarms."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import structlog
from django.db import connection

from billing.metering.leases import Alarm
from billing.metering.models import DeadLetter
from billing.metering.reading import Letter

ADD_TALLIES = """
INSERT INTO metering_tally AS tally (organization_id, kind, day, count)
SELECT organization_id, kind, %s, count FROM
    unnest(%s::text[], %s::text[], %s::bigint[]) AS new (organization_id, kind, count)
ON CONFLICT (organization_id, kind, day) DO UPDATE SET count = tally.count + excluded.count
"""
OPERATOR = ""
"""Tallies that belong to no organization are the operator's."""

logger = structlog.get_logger(__name__)


def add_tallies(alarms: Mapping[tuple[str, Alarm], int], *, now: datetime) -> None:
    """Log each kind of alarm once and add it to its day's count, in one order."""
    rows = sorted((owner, kind, count) for (owner, kind), count in alarms.items())
    if not rows:
        return
    for organization_id, kind, count in rows:
        logger.warning(
            "metering_alarm", organization_id=organization_id, kind=kind, event_count=count
        )
    columns = [list(column) for column in zip(*rows, strict=True)]
    with connection.cursor() as cursor:
        cursor.execute(ADD_TALLIES, [now.date(), *columns])


def file_letters(letters: Sequence[Letter], *, gateway_id: str, now: datetime) -> None:
    """Keep events that could not be booked; the same bytes are kept once."""
    DeadLetter.objects.bulk_create(
        [
            DeadLetter(
                digest=letter.digest,
                event_id=letter.event_id,
                gateway_id=gateway_id,
                reason=letter.reason,
                payload=letter.payload,
                received_at=now,
            )
            for letter in letters
        ],
        ignore_conflicts=True,
    )


def operator_alarms(*, duplicates: int, dead_letters: int) -> Counter[tuple[str, Alarm]]:
    """Return the alarms of a batch that belong to no organization."""
    alarms: Counter[tuple[str, Alarm]] = Counter()
    if duplicates:
        alarms[OPERATOR, "duplicate_event"] = duplicates
    if dead_letters:
        alarms[OPERATOR, "dead_letter"] = dead_letters
    return alarms
