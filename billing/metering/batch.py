"""Reading a batch: each event is decoded and checked alone; poison spoils no neighbour."""

import hashlib
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import NamedTuple

import msgspec
import xxhash

from serving.contract import SCHEMA
from serving.contract.codec import ContractError, decode, storable
from serving.contract.ids import moment_of
from serving.contract.price import RATING
from serving.contract.units import WRITTEN_TIER
from serving.contract.usage import UsageEvent

AGE_MAX = timedelta(days=90)
"""The window of ingest: a day older than that may be archived and dropped."""
AHEAD_MAX = timedelta(minutes=5)
UUID_VERSION = 7
LABELS = (
    "gateway_id", "organization_id", "project_id", "key_id", "model_id", "variant_id",
    "deployment_id", "replica_id", "price_id", "endpoint",
)  # fmt: skip
_LABEL = re.compile("[A-Za-z0-9_.:-]+")
_UUID7 = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_FIRST_FIELD = b'{"event_id":"'
_ID_BEGINS, _ID_ENDS = len(_FIRST_FIELD), len(_FIRST_FIELD) + 36
"""Where gateways write the id: the first field of the contract's record."""
LOST = "gateway_lost"
"""The outcome that a gateway reports of what was at work when it died."""


class PoisonError(ValueError):
    """An event that cannot be booked as it is."""


class Payload(NamedTuple):
    """The bytes of an event, their digest, and the id they name, None where there is none.

    Ids are canonical text throughout: making a UUID of each costs as much as decoding the event.
    """

    body: bytes
    digest: int
    event_id: str | None


class Received(msgspec.Struct, frozen=True, gc=False):
    """An event as it came; `received_at` is the millisecond in its id."""

    payload: Payload
    event_id: str
    event: UsageEvent
    received_at: datetime

    @property
    def day(self) -> date:
        """The UTC day in the event's id: the partition it belongs to."""
        return self.received_at.date()

    @property
    def is_lost(self) -> bool:
        """Whether its gateway ended before it knew the outcome."""
        return self.event.outcome == LOST


@dataclass(frozen=True, slots=True)
class Letter:
    """An event for the dead-letter table, as it came."""

    event_id: str
    reason: str
    payload: bytes

    @property
    def digest(self) -> str:
        """What keeps the same bytes from being filed twice."""
        return hashlib.sha256(self.payload).hexdigest()


@dataclass(slots=True)
class Batch:
    """What a batch holds: events by their ids, letters to file, repeats within the batch."""

    received: dict[str, Received] = field(default_factory=dict)
    letters: list[Letter] = field(default_factory=list)
    repeated_count: int = 0
    others: list[Received] = field(default_factory=list)
    """What came under the id of another with other content: to be judged once that is booked, or
    is not."""

    def take(self, received: Received) -> None:
        """Keep an event once. A real outcome goes before `gateway_lost`, whichever came first; of
        two real ones the first does."""
        before = self.received.setdefault(received.event_id, received)
        if before is received:
            return
        if before.payload.digest == received.payload.digest:
            self.repeated_count += 1
        elif before.is_lost and not received.is_lost:
            self.received[received.event_id] = received
            self.others.append(before)
        else:
            self.others.append(received)


class Named(msgspec.Struct):
    """Of an event, its id alone."""

    event_id: str = ""


def payload_of(body: bytes) -> Payload:
    """Return an event's bytes with what a repeat is known by."""
    digest = xxhash.xxh3_64_intdigest(body) - 2**63
    event_id = body[_ID_BEGINS:_ID_ENDS].decode("ascii", "replace")
    if body[:_ID_BEGINS] != _FIRST_FIELD or _UUID7.fullmatch(event_id) is None:
        return Payload(body, digest, canonical(_named(body)))
    return Payload(body, digest, event_id)


def canonical(event_id: str) -> str | None:
    """Return a UUIDv7 in its one form of lower case and four dashes; None for anything else."""
    if _UUID7.fullmatch(event_id):
        return event_id
    try:
        found = uuid.UUID(event_id)
    except ValueError:
        return None
    return str(found) if found.version == UUID_VERSION else None


def read(payloads: Iterable[Payload], *, now: datetime) -> Batch:
    """Decode and check each event of a batch."""
    batch = Batch()
    for payload in payloads:
        try:
            received = _receive(payload, now)
        except (ContractError, PoisonError) as error:
            batch.letters.append(letter(payload.body, str(error)))
            continue
        batch.take(received)
    return batch


def letter(body: bytes, reason: str) -> Letter:
    """Return the dead letter of an event, with its id where that can be read."""
    return Letter(storable(_named(body))[:200], storable(reason)[:500], body)


def _named(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=Named).event_id
    except (msgspec.MsgspecError, ValueError):
        return ""


def _receive(payload: Payload, now: datetime) -> Received:
    event = decode(payload.body, UsageEvent)
    _check_labels(payload.body, event)
    if event.schema > SCHEMA or event.rating > RATING:
        raise PoisonError(
            f"schema {event.schema}, rating {event.rating}; wanted at most {SCHEMA} and {RATING}"
        )
    event_id = payload.event_id
    if event_id is None:
        raise PoisonError(f"event_id is {event.event_id!r}; wanted a UUIDv7")
    received_at = _moment(event_id, now)
    if event.tier in WRITTEN_TIER:
        event = msgspec.structs.replace(event, tier=WRITTEN_TIER[event.tier])
    return Received(payload, event_id, event, received_at)


def _check_labels(body: bytes, event: UsageEvent) -> None:
    """Raise PoisonError on an id of other characters than the contract's. Plain ASCII without an
    escape can hold none that matters: JSON has no bare control characters."""
    if body.isascii() and b"\\" not in body:
        return
    for name in LABELS:
        value = getattr(event, name)
        if value is not None and _LABEL.fullmatch(value) is None:
            raise PoisonError(f"{name} is {value!r}; wanted letters, digits and _.:-")
    for charge in event.charges:
        if not (_LABEL.fullmatch(charge.budget_id) and _LABEL.fullmatch(charge.lease_id)):
            raise PoisonError(f"charges name {charge.budget_id!r}, {charge.lease_id!r}")


def _moment(event_id: str, now: datetime) -> datetime:
    """Return the moment an id begins with. Raises PoisonError outside the window of ingest."""
    try:
        moment = moment_of(event_id)
    except OverflowError:
        raise PoisonError("event_id names a moment beyond all calendars") from None
    if moment > now + AHEAD_MAX:
        raise PoisonError(
            f"clock ahead: event_id is of {moment.isoformat()}, now is {now.isoformat()}"
        )
    if moment < now - AGE_MAX:
        raise PoisonError(f"event_id is of {moment.isoformat()}, over {AGE_MAX.days} days ago")
    return moment
