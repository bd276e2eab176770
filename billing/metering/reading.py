"""Reading a batch: each event is decoded, checked and rated alone; poison spoils no neighbour."""

import hashlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

import msgspec

from billing.rating.rate import Charge, rate
from serving.contract import SCHEMA
from serving.contract.codec import ContractError, decode
from serving.contract.price import Meters
from serving.contract.usage import UsageEvent

AGE_MAX = timedelta(days=90)
AHEAD_MAX = timedelta(days=1)
CHARGE_MAX_NANOS = 10**15
"""A million dollars for one request is a mistake somewhere."""


class PoisonError(ValueError):
    """An event that cannot be booked as it is."""


@dataclass(frozen=True, slots=True)
class Rated:
    """An event with its id as a UUID and billing's own charge."""

    event_id: uuid.UUID
    event: UsageEvent
    charge: Charge
    payload: bytes

    @property
    def day(self) -> date:
        """The UTC day in the event's id: the partition it belongs to."""
        return id_moment(self.event_id).date()


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
class Reading:
    """What a batch holds: events to book by id, letters to file, repeats within the batch."""

    rated: dict[uuid.UUID, Rated] = field(default_factory=dict)
    letters: list[Letter] = field(default_factory=list)
    repeated_count: int = 0


class _Name(msgspec.Struct):
    event_id: str = ""


def read(
    payloads: Sequence[bytes],
    *,
    find_prices: Callable[[set[str]], Mapping[str, Meters]],
    now: datetime,
) -> Reading:
    """Decode, check and rate each event of a batch."""
    reading = Reading()
    events: list[tuple[bytes, UsageEvent]] = []
    for payload in payloads:
        try:
            events.append((payload, decode(payload, UsageEvent)))
        except ContractError as error:
            reading.letters.append(letter(payload, str(error)))
    prices = find_prices({event.price_id for _, event in events})
    for payload, event in events:
        try:
            _add(reading, _rated(payload, event, prices, now))
        except PoisonError as error:
            reading.letters.append(letter(payload, str(error)))
    return reading


def letter(payload: bytes, reason: str) -> Letter:
    """Return the dead letter of an event, with its id where that can be read."""
    try:
        event_id = msgspec.json.decode(payload, type=_Name).event_id
    except (msgspec.MsgspecError, ValueError):
        event_id = ""
    return Letter(storable(event_id)[:200], storable(reason)[:500], payload)


def storable(text: str) -> str:
    """Return text that PostgreSQL can hold: no NUL, no lone surrogates."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def id_moment(event_id: uuid.UUID) -> datetime:
    """Return the moment that a UUIDv7 begins with."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=event_id.int >> 80)


def _add(reading: Reading, rated: Rated) -> None:
    if rated.event_id in reading.rated:
        reading.repeated_count += 1
    else:
        reading.rated[rated.event_id] = rated


def _rated(payload: bytes, event: UsageEvent, prices: Mapping[str, Meters], now: datetime) -> Rated:
    if event.schema > SCHEMA:
        raise PoisonError(f"schema is {event.schema}; wanted at most {SCHEMA}")
    event_id = _uuid7(event.event_id)
    try:
        moments = (event.received_at, id_moment(event_id))
    except OverflowError:
        raise PoisonError("event_id names a moment beyond all calendars") from None
    if not all(now - AGE_MAX <= moment <= now + AHEAD_MAX for moment in moments):
        raise PoisonError(f"received_at or event_id is not within {AGE_MAX.days} days of now")
    if event.price_id not in prices:
        raise PoisonError(f"price_id is {event.price_id!r}; wanted a published price")
    charge = rate(event, prices[event.price_id])
    if charge.charged_nanos + charge.waived_nanos > CHARGE_MAX_NANOS:
        raise PoisonError(f"the charge would be over {CHARGE_MAX_NANOS} nanos")
    return Rated(event_id, event, charge, payload)


def _uuid7(text: str) -> uuid.UUID:
    try:
        event_id = uuid.UUID(text)
    except ValueError:
        raise PoisonError(f"event_id is {text!r}; wanted a UUIDv7") from None
    if event_id.version != 7:
        raise PoisonError(f"event_id is {text!r}; wanted a UUIDv7")
    return event_id
