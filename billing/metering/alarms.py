"""What about usage deserves a person's look: logged, and counted per organization and day."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Literal

import structlog
from django.db import connection

Alarm = Literal[
    "unknown_lease",
    "closed_lease",
    "foreign_lease",
    "missing_lease",
    "charge_difference",
    "lease_overrun",
    "foreign_caller",
    "unknown_price",
    "foreign_price",
    "early_price",
    "superseded_price",
    "other_band",
    "other_content",
    "duplicate_event",
    "dead_letter",
]
OPERATOR = ""
"""Alarms that belong to no organization are the operator's."""

ADD_TALLIES = """
INSERT INTO metering_tally AS tally (organization_id, kind, day, count)
SELECT organization_id, kind, %s, count FROM
    unnest(%s::text[], %s::text[], %s::bigint[]) AS new (organization_id, kind, count)
ON CONFLICT (organization_id, kind, day) DO UPDATE SET count = tally.count + excluded.count
"""

Alarms = Counter[tuple[str, str]]
"""How often, by organization and kind."""
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
        cursor.execute(ADD_TALLIES, [now.date(), *columns])
