"""Facts checked, not believed: what an event says of its price and caller, against control's rows.

What does not fit is still a fact. It is charged where that is safe, waived where it is not, and
somebody is told.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from billing.metering.batch import PoisonError, Received
from billing.metering.interning import (
    CALLERS,
    ORIGINS,
    SUPPLIES,
    Interned,
    Names,
    caller_of,
    origin_of,
    supply_of,
)
from billing.rating.rate import rate
from control.pricing.selectors import PriceValidity, price_validity
from serving.contract.price import TokenCharge
from serving.contract.usage import UsageEvent

UsageAlarm = Literal[
    "unknown_lease",
    "closed_lease",
    "foreign_lease",
    "missing_lease",
    "charge_difference",
    "lease_overrun",
    "foreign_caller",
    "unknown_price",
    "foreign_price",
    "early_price",
    "superseded_price",
    "other_band",
    "other_content",
    "duplicate_event",
    "dead_letter",
]
"""The kinds of alarms that ingest raises."""
CLOCKS_APART_MAX = timedelta(minutes=5)
"""A price may be named this long before it is in force, or after it was: clocks differ."""
CHARGE_MAX_NANOS = 10**15
"""A million dollars for one request is a mistake somewhere."""
NO_CHARGE = TokenCharge(0, 0, 0)


class Fact(msgspec.Struct, frozen=True, gc=False):
    """An event with billing's own charge; a `fault` says why that is waived."""

    received: Received
    caller_id: int
    supply_id: int
    origin_id: int
    charge: TokenCharge
    charged_nanos: int
    is_waived: bool
    fault: str | None
    alarms: tuple[str, ...]

    @property
    def event(self) -> UsageEvent:
        """What the gateway said."""
        return self.received.event


class Judge:
    """Control's rows for the events of one batch, asked for once."""

    def __init__(self, received: Mapping[str, Received]) -> None:
        events = [one.event for one in received.values()]
        self._callers: dict[Names, Interned] = CALLERS.intern(map(caller_of, events))
        self._supplies = SUPPLIES.intern(map(supply_of, events))
        self._origins = ORIGINS.intern(map(origin_of, events))
        self._prices = price_validity({event.price_id for event in events})

    def judge(self, received: Received) -> Fact:
        """Return an event as the books hold it. Raises PoisonError on a charge beyond reason."""
        event = received.event
        caller = self._callers[caller_of(event)]
        price = self._prices.get(event.price_id)
        fault = caller.fault or price_fault(event, price, received.received_at)
        alarms: tuple[str, ...] = (fault,) if fault else ()
        if price is not None and not fault:
            alarms = price_alarms(event, price, received.received_at)
        due = None if price is None else rate(event, price)
        if due is not None and due.charge.total_nanos > CHARGE_MAX_NANOS:
            raise PoisonError(f"the charge would be over {CHARGE_MAX_NANOS} nanos")
        return Fact(
            received=received,
            caller_id=caller.id,
            supply_id=self._supplies[supply_of(event)].id,
            origin_id=self._origins[origin_of(event)].id,
            charge=NO_CHARGE if due is None else due.charge,
            charged_nanos=0 if due is None or fault else due.charged_nanos,
            is_waived=due is None or due.is_waived or fault is not None,
            fault=fault,
            alarms=alarms,
        )


def price_fault(event: UsageEvent, price: PriceValidity | None, at: datetime) -> UsageAlarm | None:
    """Return why an event cannot be charged by the price it names: never in force for it."""
    if price is None or price.at(at) == "cancelled":
        return "unknown_price"
    if (price.variant_id, price.tier) != (event.variant_id, event.tier):
        return "foreign_price"
    if not price.is_open_to(event.organization_id):
        return "foreign_price"
    return "early_price" if price.at(at + CLOCKS_APART_MAX) == "not_yet" else None


def price_alarms(event: UsageEvent, price: PriceValidity, at: datetime) -> tuple[UsageAlarm, ...]:
    """Return what about a price deserves a look, though it is charged as named."""
    alarms: list[UsageAlarm] = []
    if price.at(at - CLOCKS_APART_MAX) == "superseded":
        alarms.append("superseded_price")
    if not price.takes(event.input_tokens):
        alarms.append("other_band")
    return tuple(alarms)
