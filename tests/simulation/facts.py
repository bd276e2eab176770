"""Facts as the books hold them: events and corrections with the names that they are of."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from uuid import UUID

import psycopg
from psycopg.rows import class_row

from tests.simulation.oracle import Due

FACTS = """
SELECT event_id, fact.organization_id, project_id, key_id, model_id, variant_id, price_id, endpoint,
    tier, gateway_id, deployment_id, replica_id, outcome, input_tokens, cached_input_tokens,
    output_tokens, reasoning_tokens, input_nanos, cached_input_nanos, output_nanos, is_waived,
    queue_seconds, ttft_seconds, total_seconds, rating, streamed, fact.fault, client_request_id,
    lease_ids, lease_nanos, digest, accounted_on, ingested_xid::text::bigint AS xid
FROM {} AS fact JOIN metering_caller AS caller ON caller.id = caller_id
JOIN metering_supply AS supply ON supply.id = supply_id
JOIN metering_origin AS origin ON origin.id = origin_id
WHERE caller.organization_id = fact.organization_id
"""
EVENTS, CORRECTIONS = "metering_usage_event", "metering_usage_correction"


@dataclass(frozen=True, slots=True)
class Fact:
    """A row of usage, as it was first reported or as it was corrected."""

    event_id: UUID
    organization_id: str
    project_id: str
    key_id: str
    model_id: str
    variant_id: str
    price_id: str
    endpoint: str
    tier: str
    gateway_id: str
    deployment_id: str
    replica_id: str
    outcome: str
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    reasoning_tokens: int
    input_nanos: int
    cached_input_nanos: int
    output_nanos: int
    is_waived: bool
    queue_seconds: float
    ttft_seconds: float | None
    total_seconds: float
    rating: int
    streamed: bool
    fault: str | None
    client_request_id: str | None
    lease_ids: list[int] | None
    lease_nanos: list[int] | None
    digest: int
    accounted_on: date
    xid: int

    @property
    def content(self) -> tuple[object, ...]:
        """What tells one report of a request from another."""
        return (self.outcome, self.input_tokens, self.cached_input_tokens, self.output_tokens)

    @property
    def due(self) -> Due:
        """What billing made of it."""
        return Due(self.input_nanos, self.cached_input_nanos, self.output_nanos, self.is_waived)

    @property
    def settled(self) -> dict[int, int]:
        """What each lease was settled by."""
        leases = self.lease_ids or []
        return dict(
            zip(leases, self.lease_nanos or [self.due.charged_nanos] * len(leases), strict=True)
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """A request as the books hold it, first and last."""

    first: Fact
    correction: Fact | None

    @property
    def real(self) -> Fact:
        """As it really was."""
        return self.correction or self.first

    @property
    def counted(self) -> Iterator[tuple[int, date, Fact]]:
        """What followers count in (1) and out (-1), on which day of the books."""
        yield 1, self.first.accounted_on, self.first
        if self.correction is not None:
            yield -1, self.correction.accounted_on, self.first
            yield 1, self.correction.accounted_on, self.correction


def read_usage(monitor: psycopg.Connection) -> dict[str, Usage]:
    """Return all usage by event id."""
    corrected = {one.event_id: one for one in _facts(monitor, CORRECTIONS)}
    usage = {
        str(one.event_id): Usage(one, corrected.pop(one.event_id, None))
        for one in _facts(monitor, EVENTS)
    }
    if corrected:
        raise AssertionError(f"Corrections of nothing: {corrected}")
    return usage


def _facts(monitor: psycopg.Connection, table: str) -> list[Fact]:
    with monitor.cursor(row_factory=class_row(Fact)) as cursor:
        return cursor.execute(FACTS.format(table)).fetchall()
