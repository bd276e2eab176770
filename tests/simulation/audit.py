"""The proof of events, budgets and leases against the gateways' journals, once all is at rest."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import psycopg

from control.feed.database_identity import database_id
from serving.contract.usage import UsageEvent
from tests.simulation.clock import EPOCH
from tests.simulation.facts import Fact, Usage, read_usage
from tests.simulation.oracle import (
    Due,
    due,
    fault_of,
    fine_periods,
    is_fine,
    month_of,
    received_at,
    require,
)
from tests.simulation.watch import BUDGETS, LEASES, BudgetRow, LeaseRow
from tests.simulation.world import World

LIFETIME = EPOCH
TOLD = (
    "gateway_id", "organization_id", "project_id", "key_id", "model_id", "variant_id",
    "deployment_id", "price_id", "endpoint", "tier", "outcome", "input_tokens",
    "cached_input_tokens", "output_tokens", "reasoning_tokens", "streamed", "queue_seconds",
    "ttft_seconds", "total_seconds", "rating",
)  # fmt: skip
"""What a fact has by the same name as its event."""
LETTERS = "SELECT payload, event_id, reason FROM metering_dead_letter WHERE booked_at IS NULL"
CLOCK_AHEAD = "clock ahead"
DAYS = "SELECT day, closed_xid::text::bigint FROM metering_day WHERE closed_at IS NOT NULL"
DIFFERENCES = "SELECT organization_id FROM metering_tally WHERE kind = 'charge_difference'"
TOLD_OTHERWISE = "SELECT organization_id FROM metering_tally WHERE kind = 'other_content'"


@dataclass(slots=True)
class Journals:
    """All that gateways ever said: by event id what they wrote, and what was acknowledged."""

    written: dict[str, list[UsageEvent]]
    acknowledged: set[str]
    acknowledged_real: set[str]
    dead: set[str]
    contents: dict[str, set[tuple[object, ...]]]
    """What was acknowledged of real outcomes, by event id."""
    poison: dict[bytes, str]
    """What can never be booked, with the id that its dead letter has."""
    poisoned: set[bytes]
    """What of it was acknowledged."""
    miscounted: set[str]
    digests: dict[str, set[int]]
    """Of the bodies that were written of an event."""


class Auditor:
    """Proves facts and authorization against the journals."""

    def __init__(self, monitor: psycopg.Connection, world: World, journals: Journals) -> None:
        self.monitor = monitor
        self.world = world
        self.journals = journals
        self.charged: Counter[tuple[str, datetime]] = Counter()
        self.settled: Counter[int] = Counter()
        self.events: list[tuple[Usage, UsageEvent, Due]] = []
        self.closed: dict[date, int] = dict(monitor.execute(DAYS).fetchall())
        self.budgets = {row[0]: BudgetRow(*row) for row in monitor.execute(BUDGETS)}
        self.leases = {row[0]: LeaseRow(*row) for row in monitor.execute(LEASES)}

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
        self._check_letters()
        usage, journals = read_usage(self.monitor), self.journals
        lost = journals.acknowledged - usage.keys() - journals.dead
        require(not lost, "What was acknowledged is booked", lost)
        unknown = usage.keys() - journals.written.keys()
        require(not unknown, "Nothing is booked that nobody sent", unknown)
        for event_id, one in usage.items():
            written = journals.written[event_id]
            versions = [event for event in written if content_of(event) == one.real.content]
            require(bool(versions), "An event is booked as it was sent", one)
            event = next((event for event in versions if is_told(one.real, event)), versions[0])
            expected = due(event, self.world.tariffs, self.world.callers)
            require(one.real.due == expected, "An event is charged what it costs", one, expected)
            if event_id in journals.acknowledged_real:
                is_real = one.real.outcome != "gateway_lost"
                require(is_real, "A real outcome replaces a lost one", one)
            is_right = one.correction is None or (
                one.first.outcome == "gateway_lost" != one.correction.outcome
            )
            require(is_right, "Only what was lost is corrected", one)
            self._check_told(one.real, event)
            parts = one.real.lease_nanos
            is_split = parts is None or bool(set(parts) - {expected.charged_nanos})
            require(is_split, "Parts are told of what was split", one.real)
            self._check_days(one)
            self.events.append((one, event, expected))
            self._charge(one.real, event, expected.charged_nanos)

    def _check_letters(self) -> None:
        """What can be booked at some time is; what cannot is kept as it came, under its id."""
        filed = {bytes(row[0]): row[1:] for row in self.monitor.execute(LETTERS)}
        poison = self.journals.poison
        for payload, (event_id, reason) in filed.items():
            if payload in poison:
                require(event_id == poison[payload], "A letter has its id", event_id, payload)
            else:
                is_ahead = reason.startswith(CLOCK_AHEAD)
                require(is_ahead, "Only what lies in the future is a dead letter", event_id, reason)
        lost = self.journals.poisoned - filed.keys()
        require(not lost, "What cannot be booked is kept as it came", lost)

    def _check_told(self, row: Fact, event: UsageEvent) -> None:
        """Nothing that a gateway said of a request is lost or changed."""
        client = (event.client_request_id or "").replace("\0", "") or None
        fault = fault_of(event, self.world.tariffs, self.world.callers)
        is_kept = (
            is_told(row, event)
            and (row.replica_id or None) == event.replica_id
            and row.client_request_id == client
            and row.fault == fault
            and row.digest in self.journals.digests.get(event.event_id, ())
        )
        require(is_kept, "What was told of a request is kept", row, event)

    def _check_days(self, one: Usage) -> None:
        """A fact is accounted on its own day while that is open, else on the first that is."""
        own = received_at(str(one.first.event_id)).astimezone(UTC).date()
        for row in (one.first, one.correction):
            if row is None:
                continue
            day, before = row.accounted_on, row.accounted_on - timedelta(days=1)
            require(day >= own, "No event is accounted before it happened", row)
            is_open = day not in self.closed or row.xid < self.closed[day]
            require(is_open, "Nothing is added to a closed day", row)
            is_late = day == own or (before in self.closed and row.xid >= self.closed[before])
            require(is_late, "What comes late is accounted on the first open day", row)

    def _check_alarms(self) -> None:
        """One id with two contents is an alarm."""
        alarmed = {row[0] for row in self.monitor.execute(TOLD_OTHERWISE)}
        for event_id, contents in self.journals.contents.items():
            owner = self.journals.written[event_id][0].organization_id
            is_told = len(contents) < 2 or owner in alarmed
            require(is_told, "Other content under the same id is an alarm", event_id, contents)

    def _check_differences(self) -> None:
        """Who says the same once charges what billing does."""
        told = self.journals.miscounted | {
            versions[0].organization_id
            for versions in self.journals.written.values()
            if len({content_of(one) for one in versions if one.outcome != "gateway_lost"}) > 1
        }
        odd = {row[0] for row in self.monitor.execute(DIFFERENCES)} - told
        require(not odd, "Gateways charge by the same rule", odd)

    def _charge(self, row: Fact, event: UsageEvent, nanos: int) -> None:
        if not nanos:
            return
        month = month_of(received_at(event.event_id))
        chain = {f"balance:{event.organization_id}": LIFETIME}
        for limited in (event.organization_id, event.project_id, event.key_id):
            chain[f"limit:{limited}"] = month
            chain |= fine_periods(limited, received_at(event.event_id))
        for key in chain.items():
            self.charged[key] += nanos
        by_budget: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for one in event.charges:
            by_budget[one.budget_id].append((one.lease_id, one.charged_nanos))
        settled: Counter[int] = Counter()
        for budget_id, parts in by_budget.items():
            left = nanos
            for place, (lease_id, part) in enumerate(parts):
                taken = left if place == len(parts) - 1 else min(part, left)
                left -= taken
                number = self._own(lease_id, event, budget_id, chain)
                if number is not None:
                    settled[number] += taken
        require(row.settled == dict(settled), "An event settles its own leases", row, settled)
        self.settled.update(settled)

    def _own(
        self, lease_id: str, event: UsageEvent, budget_id: str, chain: dict[str, datetime]
    ) -> int | None:
        """Return a lease's number where it is one that the event's gateway held for it."""
        number = number_of(lease_id, self.leases)
        if number is None:
            return None
        lease = self.leases[number]
        budget = self.budgets[lease.budget]
        is_own = (
            lease.gateway_id == event.gateway_id
            and budget.budget_id == budget_id
            and chain.get(budget_id) == budget.starts_at
        )
        return number if is_own else None

    def _check_budgets(self) -> None:
        found = {}
        for row in self.budgets.values():
            found[row.budget_id, row.starts_at] = row
            charged = self.charged[row.budget_id, row.starts_at]
            require(row.posted_nanos == charged, "Posted is what was charged", row, charged)
            require(row.pending_nanos == 0, "In the end nothing is pending", row)
        used = {key for key, nanos in self.charged.items() if nanos and not is_fine(key[0])}
        missing = used - found.keys()  # those by the week and the day are made where needed
        require(not missing, "Every charge has its budget", missing)

    def _check_leases(self) -> None:
        for row in self.leases.values():
            settled = self.settled[row.id]
            require(row.settled_nanos == settled, "A lease is settled by its events", row, settled)
            require(row.closed_at is not None, "In the end every lease is closed", row)


def is_told(row: Fact, event: UsageEvent) -> bool:
    """Tell whether a fact has what an event has by the same name."""
    return all(getattr(row, name) == getattr(event, name) for name in TOLD)


def number_of(lease_id: str, leases: Mapping[int, object]) -> int | None:
    """Return the number in a lease's name; None where nobody was ever granted it."""
    era, _, number = lease_id.partition(".")
    is_one = era == database_id() and number.isascii() and number.isdecimal()
    return int(number) if is_one and int(number) in leases else None


def content_of(event: UsageEvent) -> tuple[object, ...]:
    return (event.outcome, event.input_tokens, event.cached_input_tokens, event.output_tokens)
