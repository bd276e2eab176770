"""Usage that gateways send again: a database that was promoted or restored may lack what the one
before it acknowledged. Gateways keep that for a day, and send it again to the database of today.

Where every gateway has done so and nothing was missing, the promoted database lacks nothing, and
the consumers of usage continue by themselves.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Q

from billing.metering.models import ResentUsage
from control.dataplane.models import GatewayHeartbeat
from control.feed.database_identity import current_database_id, earlier_database_ids
from serving.contract.usage import KEPT_SECONDS, UsageBatch

KEPT = timedelta(seconds=KEPT_SECONDS)
# A shipment that says nothing new is noted once a minute.
NOTE = """
INSERT INTO metering_resent_usage AS noted
    (gateway_id, shipped_at, lineage, event_count, missing_count, finished_at)
VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (gateway_id) DO UPDATE SET
    shipped_at = greatest(noted.shipped_at, excluded.shipped_at),
    lineage = excluded.lineage,
    event_count = excluded.event_count
        + CASE WHEN noted.lineage = excluded.lineage THEN noted.event_count ELSE 0 END,
    missing_count = excluded.missing_count
        + CASE WHEN noted.lineage = excluded.lineage THEN noted.missing_count ELSE 0 END,
    finished_at = coalesce(excluded.finished_at,
        CASE WHEN noted.lineage = excluded.lineage THEN noted.finished_at END)
WHERE noted.lineage <> excluded.lineage OR excluded.event_count > 0
    OR excluded.finished_at IS NOT NULL
    OR noted.shipped_at < excluded.shipped_at - interval '1 minute'
"""


@dataclass(frozen=True, slots=True)
class GatewayResend:
    """What a gateway sent again to the database of today; `is_finished` once it has sent all."""

    gateway_id: str
    event_count: int = 0
    missing_count: int = 0
    is_finished: bool = False

    @property
    def is_proof(self) -> bool:
        """Whether this database had everything that the gateway had shipped."""
        return self.is_finished and not self.missing_count


def note_shipment(batch: UsageBatch, *, missing: int, now: datetime) -> None:
    """Note that a gateway ships, and count `missing` of its resent events that are unknown here.

    Counted before they are booked: a batch that comes twice is counted twice rather than never.
    """
    lineage = current_database_id()
    events, lacking = (len(batch.events), missing) if batch.resent else (0, 0)
    finished_at = now if batch.is_last and batch.lineage == lineage else None
    with connection.cursor() as cursor:
        cursor.execute(NOTE, [batch.gateway_id, now, lineage, events, lacking, finished_at])


def resends(*, since: datetime) -> list[GatewayResend]:
    """Return what each gateway sent again: those that are alive, and those that shipped within a
    day before `since`, when the database of today was copied."""
    lineage = current_database_id()
    living = GatewayHeartbeat.objects.values_list("gateway_id", flat=True)
    found = {name: GatewayResend(name) for name in living}
    shipped_lately = Q(shipped_at__gt=since - KEPT)
    for row in ResentUsage.objects.filter(shipped_lately | Q(gateway_id__in=list(found))):
        name = row.gateway_id
        found[name] = (
            GatewayResend(name, row.event_count, row.missing_count, row.finished_at is not None)
            if row.lineage == lineage
            else GatewayResend(name)
        )
    return [found[name] for name in sorted(found)]


def lacks_nothing(*, before: str, since: datetime, now: datetime) -> bool:
    """Return whether gateways prove that this database has all usage of the one of lineage
    `before`, of which it is a physical copy that was made at `since` or later."""
    if now - since > KEPT or before not in earlier_database_ids():
        return False
    return all(gateway.is_proof for gateway in resends(since=since))
