"""Alarms are logged, and counted per organization, kind and day."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

import structlog
from django.db import connection, transaction

OPERATOR = ""
"""The owner of an alarm that belongs to no organization."""

ADD_COUNTS = """
INSERT INTO metering_tally AS stored (organization_id, kind, day, count)
SELECT organization_id, kind, %s, count FROM
    unnest(%s::text[], %s::text[], %s::bigint[]) AS new (organization_id, kind, count)
ON CONFLICT (organization_id, kind, day) DO UPDATE SET count = stored.count + excluded.count
"""

Alarms = Counter[tuple[str, str]]
"""The number of alarms, by organization and kind."""
logger = structlog.get_logger(__name__)


def raise_alarms(alarms: Mapping[tuple[str, str], int], *, now: datetime) -> None:
    """Log each kind of alarm once and add it to its day's count, in one order.

    An alarm is no fact: it is counted after the facts are committed, and holds none of them up.
    """
    rows = sorted((owner, kind, count) for (owner, kind), count in alarms.items() if count)
    if not rows:
        return
    for organization_id, kind, count in rows:
        logger.warning(
            "metering_alarm", organization_id=organization_id, kind=kind, event_count=count
        )
    columns = [list(column) for column in zip(*rows, strict=True)]
    with connection.cursor() as cursor:
        cursor.execute(ADD_COUNTS, [now.date(), *columns])


def raise_alarm_on_commit(organization_id: str, kind: str, *, now: datetime) -> None:
    """Raise one alarm once the transaction is committed; a failure to count it is only logged."""
    alarm = {(organization_id, kind): 1}
    # No partial: Django names the function that failed, and a partial has no name.
    transaction.on_commit(lambda: raise_alarms(alarm, now=now), robust=True)
