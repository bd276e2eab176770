"""Facts into their table: COPY to a temporary table, then inserted once by their id."""

from collections.abc import Iterable, Mapping
from datetime import date
from typing import NamedTuple

from django.db import connection

from billing.arrays import array
from billing.metering.claims import Claims
from billing.metering.days import open_day
from billing.metering.judging import Fact
from serving.contract.codec import storable

COLUMNS = (
    "event_id", "organization_id", "digest", "input_nanos", "cached_input_nanos", "output_nanos",
    "caller_id", "supply_id", "origin_id", "input_tokens", "cached_input_tokens", "output_tokens",
    "reasoning_tokens", "accounted_on", "queue_seconds", "ttft_seconds", "total_seconds", "rating",
    "streamed", "is_waived", "outcome", "fault", "client_request_id", "lease_ids", "lease_nanos",
)  # fmt: skip
LISTED = ", ".join(COLUMNS)

EMPTY = """
CREATE TEMPORARY TABLE IF NOT EXISTS usage_staging (LIKE metering_usage_event)
    ON COMMIT DELETE ROWS;
DELETE FROM usage_staging
"""
COPY = f"COPY usage_staging ({LISTED}) FROM STDIN"
# Sorted, so that two batches with the same events wait for each other in one order.
INSERT = f"""
INSERT INTO metering_usage_event ({LISTED})
SELECT {LISTED} FROM usage_staging ORDER BY event_id
ON CONFLICT (event_id) DO NOTHING
RETURNING event_id::text
"""  # noqa: S608 -- constants of this module
# What was reported as lost and turns out to have ended otherwise; the first real outcome wins.
CORRECT = f"""
INSERT INTO metering_usage_correction ({LISTED})
SELECT {LISTED} FROM usage_staging WHERE event_id = ANY(%s::uuid[]) ORDER BY event_id
ON CONFLICT (event_id) DO NOTHING
RETURNING event_id::text
"""  # noqa: S608 -- constants of this module
# The digests and outcomes that events were stored with, and that their corrections brought.
STORED = """
SELECT stored.event_id::text, stored.digest, stored.outcome, correction.digest
FROM metering_usage_event AS stored
LEFT JOIN metering_usage_correction AS correction USING (event_id)
WHERE stored.event_id = ANY(%s::uuid[])
"""


class Stored(NamedTuple):
    """Of a stored event: its digest (None from before there were digests), its outcome, and the
    digest of its correction."""

    digest: int | None
    outcome: str
    corrected_digest: int | None

    @property
    def is_final(self) -> bool:
        """Whether a real outcome is stored."""
        return self.outcome != "gateway_lost" or self.corrected_digest is not None

    def holds(self, digest: int) -> bool:
        """Tell whether these bytes are what is stored."""
        if self.digest is None and self.outcome != "gateway_lost":
            return True
        return digest in (self.digest, self.corrected_digest)


def stored(event_ids: Iterable[str]) -> dict[str, Stored]:
    """Return what is stored of those events that are there."""
    with connection.cursor() as cursor:
        cursor.execute(STORED, [array(event_ids)])
        return {event_id: Stored(*rest) for event_id, *rest in cursor.fetchall()}


def insert_once(
    facts: Iterable[Fact], claims: Mapping[str, Claims], *, closed: date | None
) -> set[str]:
    """Insert facts that are not there yet; return their ids. All of them stay staged."""
    with connection.cursor() as cursor:
        cursor.execute(EMPTY)
        # Django wraps the errors of execute, not of copy.
        with connection.wrap_database_errors, cursor.copy(COPY) as copy:
            copy.write("".join(_line(one, claims[one.received.event_id], closed) for one in facts))
        cursor.execute(INSERT)
        return {row[0] for row in cursor.fetchall()}


def correct_once(event_ids: Iterable[str]) -> set[str]:
    """Insert staged facts as corrections of what is stored; return those that were the first."""
    with connection.cursor() as cursor:
        cursor.execute(CORRECT, [array(event_ids)])
        return {row[0] for row in cursor.fetchall()}


def _line(fact: Fact, claims: Claims, closed: date | None) -> str:
    """Return a row in COPY's text form. The contract's ids need no escaping."""
    event, charge = fact.event, fact.charge
    leases, parts = claims.settled_nanos, set(claims.settled_nanos.values())
    is_split = bool(leases) and parts != {fact.charged_nanos}
    fault = fact.fault or "\\N"
    ttft = "\\N" if event.ttft_seconds is None else event.ttft_seconds
    lease_ids = array(leases) if leases else "\\N"
    lease_nanos = array(leases.values()) if is_split else "\\N"
    return (
        f"{fact.received.event_id}\t{event.organization_id}\t{fact.received.payload.digest}"
        f"\t{charge.input_nanos}\t{charge.cached_input_nanos}\t{charge.output_nanos}"
        f"\t{fact.caller_id}\t{fact.supply_id}\t{fact.origin_id}"
        f"\t{event.input_tokens}\t{event.cached_input_tokens}\t{event.output_tokens}"
        f"\t{event.reasoning_tokens}\t{open_day(fact.received.day, closed)}"
        f"\t{event.queue_seconds}\t{ttft}\t{event.total_seconds}\t{event.rating}"
        f"\t{'t' if event.streamed else 'f'}\t{'t' if fact.is_waived else 'f'}\t{event.outcome}"
        f"\t{fault}\t{_text(event.client_request_id)}\t{lease_ids}\t{lease_nanos}\n"
    )


def _text(text: str | None) -> str:
    """Return free text in COPY's form."""
    if not text:
        return "\\N"
    text = storable(text).replace("\\", "\\\\")
    return text.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
