"""What is from long ago: a day that was dropped, and events from before there were digests."""

from datetime import UTC, datetime, time, timedelta

import msgspec
import psycopg

from billing.metering.ingest import ingest
from serving.contract.usage import UsageBatch, UsageEvent, UsageReceipt
from tests.simulation.cast import Cast
from tests.simulation.oracle import require

LONG_AGO = timedelta(days=89)
DROP = """
INSERT INTO metering_day (day, closed_at, sealed_at, archive_path, archived_at, dropped_at)
SELECT %s, at, at, 'gone', at, at FROM (VALUES (%s::timestamptz)) AS given (at)
ON CONFLICT (day) DO UPDATE SET dropped_at = excluded.dropped_at
"""
FORGET_DIGEST = "UPDATE metering_usage_event SET digest = NULL WHERE event_id = %s::uuid"
LIKE = """
SELECT event_id::text FROM metering_usage_event
WHERE (outcome = 'gateway_lost') = %s AND NOT EXISTS (
    SELECT FROM metering_usage_correction AS correction
    WHERE correction.event_id = metering_usage_event.event_id
) ORDER BY event_id LIMIT 1
"""
OTHER_CONTENT = """
SELECT coalesce(sum(count), 0)::bigint FROM metering_tally WHERE kind = 'other_content'
"""


def check_long_ago(cast: Cast, monitor: psycopg.Connection) -> None:
    """Raises BrokenError."""
    _check_undigested(cast, monitor)
    _check_archived(cast, monitor)


def _check_undigested(cast: Cast, monitor: psycopg.Connection) -> None:
    """Of an event without a digest, whatever comes under its id is a repeat; a lost one without
    any is still replaced by what became of it."""
    for is_lost in (False, True):
        event = _event_like(cast, monitor, is_lost=is_lost)
        if event is None:
            continue
        with monitor.transaction():
            monitor.execute("SET LOCAL session_replication_role = replica")
            monitor.execute(FORGET_DIGEST, [event.event_id])
        told = msgspec.structs.replace(
            event, queue_seconds=event.queue_seconds + 1, outcome="engine_failed"
        )
        before = monitor.execute(OTHER_CONTENT).fetchone()
        receipt = _ship(cast, told)
        counts = (receipt.accepted, receipt.duplicates)
        wanted = (1, 0) if is_lost else (0, 1)
        require(counts == wanted, "An event without a digest is what it was", receipt, event)
        after = monitor.execute(OTHER_CONTENT).fetchone()
        require(before == after, "Nobody knows what an event without a digest said", event)


def _check_archived(cast: Cast, monitor: psycopg.Connection) -> None:
    """What comes for a day that was dropped is a letter, and its day is not made again."""
    event = _event_like(cast, monitor, is_lost=False)
    if event is None:
        return
    day = (cast.now - LONG_AGO).date()
    monitor.execute(DROP, [day, cast.now])
    noon = datetime.combine(day, time(12), UTC)
    late = msgspec.structs.replace(event, event_id=cast.gateways[0].new_event_id(noon))
    receipt = _ship(cast, late)
    reasons = [one.reason for one in receipt.dead_lettered]
    is_kept = receipt.accepted == 0 and reasons == [f"{day} is archived"]
    require(is_kept, "What comes for an archived day is a letter", receipt)


def _event_like(cast: Cast, monitor: psycopg.Connection, *, is_lost: bool) -> UsageEvent | None:
    row = monitor.execute(LIKE, [is_lost]).fetchone()
    if row is None:
        return None
    for gateway in cast.gateways:
        for event in gateway.journal.written.get(row[0], ()):
            if (event.outcome == "gateway_lost") == is_lost:
                return event
    return None


def _ship(cast: Cast, event: UsageEvent) -> UsageReceipt:
    body = msgspec.Raw(msgspec.json.encode(event))
    return ingest(UsageBatch(event.gateway_id, (body,), sent_at=cast.now), now=cast.now)
