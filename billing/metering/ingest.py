"""Ingest: a batch of usage events is accepted, rated, booked and summed in one transaction.

Order of locks, the same everywhere: events by id, then the organizations' budgets by id, then
whatever belongs to those organizations.
"""

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime

import structlog
from django.db import DataError, IntegrityError, transaction

from billing.credit.selectors import lease_terms, month_of
from billing.credit.services.budgets import SpendKey, add_spend, lock_budgets
from billing.credit.services.charges import UsageCharge, post_charges
from billing.credit.services.leases import settle_leases
from billing.metering import rollups
from billing.metering.filing import add_tallies, file_letters, operator_alarms
from billing.metering.leases import Alarm, Claims, claims
from billing.metering.partitions import ensure_days
from billing.metering.reading import Rated, Reading, letter, read
from billing.metering.retries import with_retries
from billing.metering.selectors import prices_by_id
from billing.metering.staging import insert_once
from control.keys.services import touch_keys
from serving.contract.ids import new_id
from serving.contract.usage import DeadLetter, UsageBatch, UsageReceipt

Chain = tuple[str, str, str, date]
"""Organization, project, key and the month they are charged in."""
logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class Effects:
    """What the fresh events of a batch change besides their own rows."""

    charged: Counter[str] = field(default_factory=Counter)
    first_event: dict[str, uuid.UUID] = field(default_factory=dict)
    charged_by_chain: Counter[Chain] = field(default_factory=Counter)
    settled: Counter[str] = field(default_factory=Counter)
    last_used_at: dict[str, datetime] = field(default_factory=dict)
    alarms: Counter[tuple[str, Alarm]] = field(default_factory=Counter)

    def add(self, rated: Rated, claimed: Claims) -> None:
        """Count one event in."""
        event, nanos = rated.event, rated.charge.charged_nanos
        for alarm in claimed.alarms:
            self.alarms[event.organization_id, alarm] += 1
        self.last_used_at[event.key_id] = max(
            event.received_at, self.last_used_at.get(event.key_id, event.received_at)
        )
        if nanos == 0:
            return
        self.charged[event.organization_id] += nanos
        first = self.first_event.get(event.organization_id, rated.event_id)
        self.first_event[event.organization_id] = min(first, rated.event_id)
        month = month_of(event.received_at)
        self.charged_by_chain[event.organization_id, event.project_id, event.key_id, month] += nanos
        for lease_id, part in claimed.settled_nanos.items():
            self.settled[lease_id] += part

    @property
    def spend(self) -> Counter[SpendKey]:
        """What the months of organizations, projects and keys were charged."""
        spend: Counter[SpendKey] = Counter()
        for (organization_id, project_id, key_id, month), nanos in self.charged_by_chain.items():
            for budget_id in (organization_id, project_id, key_id):
                spend[SpendKey(budget_id, month, organization_id)] += nanos
        return spend


def ingest(batch: UsageBatch, *, now: datetime) -> UsageReceipt:
    """Book a batch once and say so; raises only where the gateway should send it again."""
    reading = read([bytes(raw) for raw in batch.events], find_prices=prices_by_id, now=now)
    ensure_days({rated.day for rated in reading.rated.values()})
    return _book_all(reading, gateway_id=batch.gateway_id, now=now)


def _book_all(reading: Reading, *, gateway_id: str, now: datetime) -> UsageReceipt:
    """Book a reading; where the database refuses it, halve it until the culprit stands alone."""
    try:
        return with_retries(lambda: book(reading, gateway_id=gateway_id, now=now))
    except (DataError, IntegrityError) as error:
        logger.exception("usage_batch_refused", event_count=len(reading.rated))
        parts = halves(reading, str(error).partition("\n")[0])
    receipts = [_book_all(part, gateway_id=gateway_id, now=now) for part in parts]
    return UsageReceipt(
        accepted=sum(receipt.accepted for receipt in receipts),
        duplicates=sum(receipt.duplicates for receipt in receipts),
        dead_lettered=tuple(dead for receipt in receipts for dead in receipt.dead_lettered),
    )


def halves(reading: Reading, reason: str) -> list[Reading]:
    """Return two readings that make up this one; a lone event becomes a dead letter."""
    rated = list(reading.rated.values())
    if not rated:
        raise ValueError(f"a batch without events was refused: {reason}")
    if len(rated) == 1:
        dead = letter(rated[0].payload, f"refused by the database: {reason}")
        return [Reading({}, [*reading.letters, dead], reading.repeated_count)]
    middle = len(rated) // 2
    return [
        Reading({one.event_id: one for one in rated[:middle]}, reading.letters),
        Reading({one.event_id: one for one in rated[middle:]}, [], reading.repeated_count),
    ]


@transaction.atomic
def book(reading: Reading, *, gateway_id: str, now: datetime) -> UsageReceipt:
    """Insert the events that are new, and everything that follows from them."""
    rated = reading.rated
    claimed = _claims(rated.values())
    transaction_ids = {one.event.organization_id: new_id() for one in rated.values()}
    fresh = insert_once(rated.values(), transaction_ids=transaction_ids, claims=claimed)
    effects = Effects()
    for event_id in fresh:
        effects.add(rated[event_id], claimed[event_id])
    duplicates = len(rated) - len(fresh) + reading.repeated_count
    if fresh:
        lock_budgets({rated[event_id].event.organization_id for event_id in fresh})
        _apply(effects, transaction_ids, now)
    lost = operator_alarms(duplicates=duplicates, dead_letters=len(reading.letters))
    add_tallies(effects.alarms + lost, now=now)
    file_letters(reading.letters, gateway_id=gateway_id, now=now)
    dead = tuple(DeadLetter(one.event_id, one.reason) for one in reading.letters)
    return UsageReceipt(accepted=len(fresh), duplicates=duplicates, dead_lettered=dead)


def _claims(rated: Iterable[Rated]) -> dict[uuid.UUID, Claims]:
    events = list(rated)
    lease_ids = {charge.lease_id for one in events for charge in one.event.charges}
    terms = lease_terms(lease_ids)
    return {one.event_id: claims(one, terms) for one in events}


def _apply(effects: Effects, transaction_ids: Mapping[str, str], now: datetime) -> None:
    """Post, settle and sum; the organizations' locks are held from here to the commit."""
    post_charges(
        [
            UsageCharge(
                organization_id=organization_id,
                transaction_id=transaction_ids[organization_id],
                source=f"usage:{effects.first_event[organization_id]}",
                nanos=nanos,
            )
            for organization_id, nanos in sorted(effects.charged.items())
        ],
        now=now,
    )
    for organization_id in settle_leases(effects.settled):
        effects.alarms[organization_id, "lease_overrun"] += 1
    add_spend(effects.spend)
    rollups.add_staged()
    touch_keys(effects.last_used_at)
