"""The proof of events, budgets and leases against the gateways' journals, once all is at rest."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import NamedTuple
from uuid import UUID

import psycopg

from billing.simulation.clock import EPOCH
from billing.simulation.oracle import Due, due, month_of, received_at, require
from billing.simulation.watch import BUDGETS, LEASES, BudgetRow, LeaseRow
from billing.simulation.world import World
from serving.contract.usage import UsageEvent

LIFETIME = EPOCH
STORED = """
SELECT event.event_id, event.organization_id, event.outcome, correction.event_id IS NOT NULL,
    coalesce(correction.outcome, event.outcome), coalesce(correction.input_tokens,
    event.input_tokens), coalesce(correction.cached_input_tokens, event.cached_input_tokens),
    coalesce(correction.output_tokens, event.output_tokens),
    coalesce(correction.input_nanos, event.input_nanos), coalesce(correction.cached_input_nanos,
    event.cached_input_nanos), coalesce(correction.output_nanos, event.output_nanos),
    coalesce(correction.is_waived, event.is_waived),
    coalesce(correction.accounted_on, event.accounted_on)
FROM metering_usage_event AS event LEFT JOIN metering_usage_correction AS correction
    USING (event_id)
"""


DEAD = """
SELECT event_id, reason FROM metering_dead_letter
WHERE reason NOT LIKE 'clock ahead%' AND booked_at IS NULL
"""


DIFFERENCES = "SELECT organization_id FROM metering_tally WHERE kind = 'charge_difference'"
TOLD_OTHERWISE = "SELECT organization_id FROM metering_tally WHERE kind = 'other_content'"


class StoredEvent(NamedTuple):
    """An event as the books hold it, corrected where it was."""

    event_id: UUID
    organization_id: str
    first_outcome: str
    is_corrected: bool
    outcome: str
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    input_nanos: int
    cached_input_nanos: int
    output_nanos: int
    is_waived: bool
    accounted_on: date

    @property
    def content(self) -> tuple[object, ...]:
        """What tells one report of a request from another."""
        return (self.outcome, self.input_tokens, self.cached_input_tokens, self.output_tokens)

    @property
    def due(self) -> Due:
        """What billing made of it."""
        return Due(self.input_nanos, self.cached_input_nanos, self.output_nanos, self.is_waived)


@dataclass(slots=True)
class Journals:
    """All that gateways ever said: by event id what they wrote, and what was acknowledged."""

    written: dict[str, list[UsageEvent]]
    acknowledged: set[str]
    acknowledged_real: set[str]
    dead: set[str]
    contents: dict[str, set[tuple[object, ...]]]
    """What was acknowledged of real outcomes, by event id."""


class Auditor:
    """Proves facts and authorization against the journals."""

    def __init__(self, monitor: psycopg.Connection, world: World, journals: Journals) -> None:
        self.monitor = monitor
        self.world = world
        self.journals = journals
        self.charged: Counter[tuple[str, datetime]] = Counter()
        self.settled: Counter[int] = Counter()
        self.events: list[tuple[StoredEvent, UsageEvent, Due]] = []

    def audit(self) -> None:
        """Raises BrokenError on the first promise that does not hold."""
        self._read_events()
        self._check_alarms()
        self._check_differences()
        self._check_budgets()
        self._check_leases()

    def charges_of(self, organization_id: str) -> int:
        """Return what an organization was charged in all."""
        return self.charged[f"balance:{organization_id}", LIFETIME]

    def _read_events(self) -> None:
        dead = self.monitor.execute(DEAD).fetchall()
        require(not dead, "Only what lies in the future is a dead letter", dead)
        stored = {str(row[0]): StoredEvent(*row) for row in self.monitor.execute(STORED)}
        lost = self.journals.acknowledged - stored.keys() - self.journals.dead
        require(not lost, "What was acknowledged is booked", lost)
        unknown = stored.keys() - self.journals.written.keys()
        require(not unknown, "Nothing is booked that nobody sent", unknown)
        for event_id, row in stored.items():
            versions = {content_of(one): one for one in self.journals.written[event_id]}
            require(row.content in versions, "An event is booked as it was sent", row)
            event = versions[row.content]
            expected = due(event, self.world.tariffs)
            require(row.due == expected, "An event is charged what it costs", row, expected)
            if event_id in self.journals.acknowledged_real:
                require(row.outcome != "gateway_lost", "A real outcome replaces a lost one", row)
            require(
                row.is_corrected == (row.first_outcome != row.outcome) and not (
                    row.is_corrected and row.first_outcome != "gateway_lost"
                ),
                "Only what was lost is corrected", row,
            )  # fmt: skip
            own_day = received_at(event_id).astimezone(UTC).date()
            require(row.accounted_on >= own_day, "No event is accounted before it happened", row)
            self.events.append((row, event, expected))
            self._charge(event, expected.charged_nanos)

    def _check_alarms(self) -> None:
        """One id with two contents is an alarm."""
        alarmed = {row[0] for row in self.monitor.execute(TOLD_OTHERWISE)}
        for event_id, contents in self.journals.contents.items():
            owner = self.journals.written[event_id][0].organization_id
            is_told = len(contents) < 2 or owner in alarmed
            require(is_told, "Other content under the same id is an alarm", event_id, contents)

    def _check_differences(self) -> None:
        """Who says the same once charges what billing does."""
        told = {
            versions[0].organization_id
            for versions in self.journals.written.values()
            if len({content_of(one) for one in versions if one.outcome != "gateway_lost"}) > 1
        }
        odd = {row[0] for row in self.monitor.execute(DIFFERENCES)} - told
        require(not odd, "Gateways charge by the same rule", odd)

    def _charge(self, event: UsageEvent, nanos: int) -> None:
        if not nanos:
            return
        month = month_of(received_at(event.event_id))
        self.charged[f"balance:{event.organization_id}", LIFETIME] += nanos
        for limited in (event.organization_id, event.project_id, event.key_id):
            self.charged[f"limit:{limited}", month] += nanos
        by_budget: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for one in event.charges:
            row = int(one.lease_id.partition(".")[2])
            by_budget[one.budget_id].append((row, one.charged_nanos))
        for parts in by_budget.values():
            left = nanos
            for place, (row, part) in enumerate(parts):
                taken = left if place == len(parts) - 1 else min(part, left)
                self.settled[row] += taken
                left -= taken

    def _check_budgets(self) -> None:
        found = {}
        for values in self.monitor.execute(BUDGETS):
            row = BudgetRow(*values)
            found[row.budget_id, row.starts_at] = row
            charged = self.charged[row.budget_id, row.starts_at]
            require(row.posted_nanos == charged, "Posted is what was charged", row, charged)
            require(row.pending_nanos == 0, "In the end nothing is pending", row)
        missing = {key for key, nanos in self.charged.items() if nanos} - found.keys()
        require(not missing, "Every charge has its budget", missing)

    def _check_leases(self) -> None:
        for values in self.monitor.execute(LEASES):
            row = LeaseRow(*values)
            settled = self.settled[row.id]
            require(row.settled_nanos == settled, "A lease is settled by its events", row, settled)
            require(row.closed_at is not None, "In the end every lease is closed", row)


def content_of(event: UsageEvent) -> tuple[object, ...]:
    return (event.outcome, event.input_tokens, event.cached_input_tokens, event.output_tokens)
