"""Events into their table: COPY to a temporary table, then inserted once by their id."""

import uuid
from collections.abc import Iterable, Mapping
from operator import attrgetter

from django.db import connection

from billing.metering import latency
from billing.metering.leases import Claims
from billing.metering.reading import Rated, storable

FROM_EVENT = (
    "organization_id", "project_id", "key_id", "gateway_id", "model_id", "variant_id",
    "deployment_id", "price_id", "endpoint", "tier", "outcome", "streamed", "received_at",
    "input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens", "queue_seconds",
    "ttft_seconds", "total_seconds",
)  # fmt: skip
DERIVED = (
    "event_id", "replica_id", "client_request_id", "charged_nanos", "waived_nanos",
    "transaction_id", "lease_ids", "lease_nanos",
)  # fmt: skip
COLUMNS = ", ".join(FROM_EVENT + DERIVED)
from_event = attrgetter(*FROM_EVENT)

CREATE = """
CREATE TEMPORARY TABLE IF NOT EXISTS usage_staging
(LIKE metering_usage_event, ttft_bucket smallint) ON COMMIT DROP
"""
COPY = f"COPY usage_staging ({COLUMNS}, ttft_bucket) FROM STDIN"
# Sorted, so that two batches with the same events wait for each other in one order.
INSERT = f"""
INSERT INTO metering_usage_event ({COLUMNS})
SELECT {COLUMNS} FROM usage_staging ORDER BY event_id
ON CONFLICT (event_id) DO NOTHING
RETURNING event_id
"""  # noqa: S608 -- constants of this module
KEEP_FRESH = "DELETE FROM usage_staging WHERE event_id <> ALL(%s)"


def insert_once(
    rated: Iterable[Rated],
    *,
    transaction_ids: Mapping[str, str],
    claims: Mapping[uuid.UUID, Claims],
) -> set[uuid.UUID]:
    """Insert events that are not there yet; return their ids. They stay staged for rollups.

    `transaction_ids` names, per organization, the ledger transaction that is about to book them.
    """
    with connection.cursor() as cursor:
        cursor.execute(CREATE)
        cursor.execute("TRUNCATE usage_staging")
        # Django wraps the errors of execute, not of copy.
        with connection.wrap_database_errors, cursor.copy(COPY) as copy:
            for one in rated:
                copy.write_row(_row(one, transaction_ids, claims[one.event_id]))
        staged_count = cursor.rowcount
        cursor.execute(INSERT)
        fresh = {row[0] for row in cursor.fetchall()}
        if len(fresh) < staged_count:
            cursor.execute(KEEP_FRESH, [list(fresh)])
    return fresh


def _row(one: Rated, transaction_ids: Mapping[str, str], claims: Claims) -> tuple[object, ...]:
    event, charge = one.event, one.charge
    return (
        *from_event(event),
        one.event_id,
        event.replica_id or "",
        storable(event.client_request_id or ""),
        charge.charged_nanos,
        charge.waived_nanos,
        transaction_ids[event.organization_id] if charge.charged_nanos else "",
        _array(f'"{lease_id}"' for lease_id in claims.settled_nanos),
        _array(str(nanos) for nanos in claims.settled_nanos.values()),
        None if event.ttft_seconds is None else latency.bucket(event.ttft_seconds),
    )


def _array(items: Iterable[str]) -> str:
    """Return PostgreSQL's literal of an array; the contract's ids need no escaping."""
    return "{" + ",".join(items) + "}"
