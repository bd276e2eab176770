"""Ingest: a batch of usage events becomes facts, once, and charges budgets.

What needs no lock comes first: reading, checking, interning, partitions. Then the batch is booked
part by part, an organization's events together, each part in one transaction: it inserts the
events and, with its last statements, locks budgets and adds to them and to leases. A part holds
the budgets of its own customers, for some milliseconds, so that leases are granted beside it.
Rollups and the ledger follow by themselves (`billing.following`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import structlog
from django.db import Error, InterfaceError, OperationalError, transaction

from billing.credit.services.leases import check_clock
from billing.metering.batch import (
    LOST,
    Batch,
    Letter,
    Payload,
    PoisonError,
    Received,
    letter,
    payload_of,
    read,
)
from billing.metering.claims import Claimants, Claims
from billing.metering.days import dropped_days, share_days
from billing.metering.effects import Effects
from billing.metering.filing import file_letters
from billing.metering.judging import Fact, Judge
from billing.metering.partitions import ensure_days
from billing.metering.resent import note_shipment
from billing.metering.staging import correct_once, insert_once, stored
from control.alarms.count import OPERATOR, Alarms, raise_alarms
from control.dataplane.gateways import owned_by_others
from control.db.retries import with_retries
from control.feed.database_identity import database_id
from serving.contract.credential import ServiceIdentity
from serving.contract.usage import DeadLetter, UsageBatch, UsageReceipt

logger = structlog.get_logger(__name__)

PART_EVENTS = 500
"""How many events are booked at a time: fewer cost more for each, more hold budgets for longer."""

Facts = dict[str, Fact]


@dataclass(slots=True)
class Booked:
    """What came of a batch, or of its parts together."""

    accepted: int = 0
    duplicates: int = 0
    letters: list[Letter] = field(default_factory=list)
    alarms: Alarms = field(default_factory=Counter)


def ingest(
    batch: UsageBatch, *, now: datetime, caller: ServiceIdentity | None = None
) -> UsageReceipt:
    """Book a batch once and say so; raises only where the gateway should send it again: what was
    booked of it by then are repeats. Events that name a gateway of others than the caller become
    letters; an operator, who calls by no credential, may book them.

    Raises ClockAheadError for a gateway that lives in the future.
    """
    check_clock(batch.sent_at, now)
    payloads = [payload_of(bytes(raw)) for raw in batch.events]
    fresh = _without_repeats(payloads)
    if batch.lineage:  # An operator's retry of a dead letter names no database.
        note_shipment(batch, missing=len(fresh), now=now)
    booked = Booked(duplicates=len(payloads) - len(fresh))
    while fresh:
        reading = read(fresh, now=now)
        booked.duplicates += reading.repeated_count
        _put_aside_of_others(reading, batch.gateway_id, caller)
        facts = _judge(reading)
        _book_parts(booked, facts, reading.letters, gateway_id=batch.gateway_id, now=now)
        fresh = _without_contradictions(reading.others, booked)
    booked.alarms[OPERATOR, "duplicate_event"] += booked.duplicates
    booked.alarms[OPERATOR, "dead_letter"] += len(booked.letters)
    raise_alarms(booked.alarms, now=now)
    return UsageReceipt(
        accepted=booked.accepted,
        duplicates=booked.duplicates,
        dead_lettered=tuple(DeadLetter(one.event_id, one.reason) for one in booked.letters),
        lineage=database_id(),
    )


def _without_repeats(payloads: Sequence[Payload]) -> list[Payload]:
    """Return what is not booked already by its very bytes: a repeat costs no more than this."""
    known = stored(one.event_id for one in payloads if one.event_id is not None)
    return [
        one
        for one in payloads
        if one.event_id not in known or not known[one.event_id].holds(one.digest)
    ]


def _put_aside_of_others(reading: Batch, gateway_id: str, caller: ServiceIdentity | None) -> None:
    """Make letters of events that name another's gateway, whose leases they would charge."""
    named = {received.event.gateway_id for received in reading.received.values()} - {gateway_id}
    others = owned_by_others(caller, named) if caller and named else {}
    if not others:
        return
    for event_id, received in list(reading.received.items()):
        if name := others.get(received.event.gateway_id):
            reason = f"gateway_id is of the gateway {name}; told by {caller}"
            reading.letters.append(letter(received.payload.body, reason))
            del reading.received[event_id]


def _without_contradictions(others: Sequence[Received], booked: Booked) -> list[Payload]:
    """Return what may still be booked of events whose ids came with other content before: where
    that was refused, the next content has its turn; where it was booked, this one is a repeat."""
    known = stored(one.event_id for one in others) if others else {}
    waiting = []
    for one in others:
        before = known.get(one.event_id)
        if before is None or not (before.is_final or one.is_lost):
            waiting.append(one.payload)
            continue
        booked.duplicates += 1
        if not before.holds(one.payload.digest) and not one.is_lost:
            booked.alarms[one.event.organization_id, "other_content"] += 1
    return waiting


def _judge(reading: Batch) -> Facts:
    """Check the events against control's rows; what cannot be booked becomes a letter."""
    gone = dropped_days(received.day for received in reading.received.values())
    received = {}
    for event_id, one in reading.received.items():
        if one.day in gone:
            reading.letters.append(letter(one.payload.body, f"{one.day} is archived"))
        else:
            received[event_id] = one
    ensure_days({one.day for one in received.values()})
    judge, facts = Judge(received), {}
    for event_id, one in received.items():
        try:
            facts[event_id] = judge.judge(one)
        except PoisonError as error:
            reading.letters.append(letter(one.payload.body, str(error)))
    return facts


def _book_parts(
    booked: Booked, facts: Facts, letters: list[Letter], *, gateway_id: str, now: datetime
) -> None:
    """Book facts in parts, the letters with the first. Where that ends half way, what is booked
    has raised its alarms: it is not judged again."""
    try:
        for part in _parts(facts):
            _book_all(booked, part, letters, gateway_id=gateway_id, now=now)
            letters = []
    except Error:
        if booked.alarms:
            raise_alarms(booked.alarms, now=now)
        raise


def _parts(facts: Facts) -> Iterator[Facts]:
    """Yield facts in parts of the same or neighbouring organizations; at least one, maybe empty."""
    rows = sorted(facts.items(), key=lambda row: row[1].event.organization_id)
    for start in range(0, max(len(rows), 1), PART_EVENTS):
        yield dict(rows[start : start + PART_EVENTS])


def _book_all(
    booked: Booked, facts: Facts, letters: list[Letter], *, gateway_id: str, now: datetime
) -> None:
    """Book facts; where that fails, halve them until the culprit stands alone, whatever the error.

    Raises OperationalError and InterfaceError: the database is busy or away, and nobody's culprit.
    """
    try:
        part = with_retries(lambda: book(facts, letters, gateway_id=gateway_id, now=now))
    except (OperationalError, InterfaceError):
        raise
    except Exception as error:
        logger.exception("usage_batch_refused", event_count=len(facts))
        if not facts:
            raise
        reason = str(error).partition("\n")[0]
    else:
        booked.accepted += part.accepted
        booked.duplicates += part.duplicates
        booked.letters += part.letters
        booked.alarms += part.alarms
        return
    for half, half_letters in _halves(facts, letters, reason):
        _book_all(booked, half, half_letters, gateway_id=gateway_id, now=now)


def _halves(facts: Facts, letters: list[Letter], reason: str) -> list[tuple[Facts, list[Letter]]]:
    """Return two parts of a batch; a lone event becomes a dead letter."""
    rows = list(facts.items())
    if len(rows) == 1:
        payload = rows[0][1].received.payload.body
        return [({}, [*letters, letter(payload, f"refused by the database: {reason}")])]
    middle = len(rows) // 2
    return [(dict(rows[:middle]), letters), (dict(rows[middle:]), [])]


def book(facts: Facts, letters: list[Letter], *, gateway_id: str, now: datetime) -> Booked:
    """Insert the facts that are new, with all that hangs on them, in one transaction."""
    claimants = Claimants(facts.values(), database_id())
    claimed = {event_id: claimants.claims(fact) for event_id, fact in facts.items()}
    with transaction.atomic():
        part = Booked(letters=letters)
        new = _insert(facts, claimed, part)
        effects = Effects(claimants, part.alarms)
        for event_id in new:
            effects.add(facts[event_id], claimed[event_id])
        file_letters(letters, gateway_id=gateway_id, now=now)
        effects.book()
    part.accepted = len(new)
    return part


def _insert(facts: Facts, claimed: Mapping[str, Claims], part: Booked) -> set[str]:
    """Insert facts once; return those that count: new events, and first real outcomes of lost."""
    if not facts:
        return set()
    new = insert_once(facts.values(), claimed, closed=share_days())
    known = facts.keys() - new
    before = stored(known) if known else {}
    lost = {
        event_id
        for event_id, one in before.items()
        if one.outcome == LOST and facts[event_id].event.outcome != LOST
        and not one.holds(facts[event_id].received.payload.digest)
    }  # fmt: skip
    corrected = correct_once(lost) if lost else set()
    for event_id, one in before.items():
        fact = facts[event_id]
        if event_id in corrected:
            continue
        part.duplicates += 1
        if not one.holds(fact.received.payload.digest) and fact.event.outcome != LOST:
            part.alarms[fact.event.organization_id, "other_content"] += 1
    return new | corrected
