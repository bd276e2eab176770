"""Events that do not fit control's rows, and bodies that are no events: what billing must book
where it is safe, or keep as a dead letter, without a word to its neighbours."""

import random
from datetime import datetime, timedelta
from typing import Any

import msgspec

from serving.contract.usage import LeaseCharge, UsageEvent
from tests.simulation.clock import milliseconds
from tests.simulation.database import REFUSED
from tests.simulation.gateway import Gateway, Journal
from tests.simulation.oracle import due
from tests.simulation.world import BAND, World

NOWHERE_LEASES = ("000000000000.1", "nobody", "{era}.999999999", "{era}." + "9" * 19)
"""Leases that nobody was ever granted; `era` is the lineage."""
LONGEST = "\U000e0001" * 64
"""As long as a label may be, and ten times as long in words."""

TOO_DEAR: dict[str, Any] = {
    "price_id": "dear", "variant_id": "variant_2", "outcome": "engine_failed",
    "input_tokens": 10**9, "cached_input_tokens": 0, "output_tokens": 1, "reasoning_tokens": 0,
}  # fmt: skip
"""What costs a nano more than can be booked."""


def spoil(gateway: Gateway, rng: random.Random) -> None:
    """Let a gateway write one more event, in which one thing is odd, or something unreadable."""
    told = [versions[-1] for versions in gateway.journal.written.values()]
    if not told:
        return
    event = msgspec.structs.replace(
        rng.choice(told), event_id=gateway.new_event_id(gateway.now), received_at=gateway.now
    )
    if rng.random() < 0.35:
        gateway.journal.write_poison(*rng.choice(poisons(event, gateway.world.clock.now)))
    else:
        changed = rng.choice(misfits(event, gateway.world))
        write_misfit(gateway.journal, changed, gateway.world)


def write_misfit(journal: Journal, event: UsageEvent, world: World) -> bytes:
    """Journal an event; its organization is one of whose alarms there is no telling."""
    journal.miscounted.add(event.organization_id)
    return journal.write(event)


def misfits(event: UsageEvent, world: World) -> list[UsageEvent]:
    """Return events with one thing odd about each that are booked all the same."""
    others = [one for one in world.callers if one.project_id != event.project_id]
    era = next((one.lease_id.partition(".")[0] for one in event.charges), "")
    foreign = {"key_id": others[0].key_id} if others else {"project_id": "proj_none"}
    shapes: list[dict[str, Any]] = [
        {"key_id": "key_none"},
        foreign,
        {"organization_id": "org_none", "project_id": "proj_none", "key_id": "key_none"},
        {"price_id": "nowhere"},
        {"price_id": "cancelled"},
        {"price_id": "contract"},
        {"price_id": "flex"},
        {"price_id": "flex", "tier": "flex"},
        {"variant_id": "variant_2"},
        {"price_id": "dear", "variant_id": "variant_2", "outcome": "engine_failed",
         "input_tokens": 10**9, "cached_input_tokens": 0, "output_tokens": 0,
         "reasoning_tokens": 0},
        {"price_id": "price_00"},
        {"price_id": "price_01"},
        {"input_tokens": BAND - 1, "cached_input_tokens": 0},
        {"input_tokens": BAND, "cached_input_tokens": BAND},
        {"charges": ()},
        {"outcome": "refused_by_engine"},
        {"outcome": "hedged"},
        *({"charges": (*event.charges[1:], LeaseCharge(event.charges[0].budget_id, name, 0))}
          for name in (one.format(era=era) for one in NOWHERE_LEASES) if event.charges),
    ]  # fmt: skip
    made = [_counted(msgspec.structs.replace(event, **shape), world) for shape in shapes]
    return made + _miscounted(event)


def _counted(event: UsageEvent, world: World) -> UsageEvent:
    """State what the event costs, per budget, on its first lease."""
    nanos = due(event, world.tariffs, world.callers).charged_nanos
    seen: set[str] = set()
    charges = []
    for one in event.charges:
        part = 0 if one.budget_id in seen else nanos
        seen.add(one.budget_id)
        charges.append(msgspec.structs.replace(one, charged_nanos=part))
    return msgspec.structs.replace(event, charges=tuple(charges))


def _miscounted(event: UsageEvent) -> list[UsageEvent]:
    """Charges off by a nano, on one lease twice, and on a lease of another budget or gateway."""
    if not event.charges:
        return []
    first, *rest = event.charges
    more = msgspec.structs.replace(first, charged_nanos=first.charged_nanos + 1)
    swapped = [
        msgspec.structs.replace(one, lease_id=event.charges[place - 1].lease_id)
        for place, one in enumerate(event.charges)
    ]
    neighbours = [
        msgspec.structs.replace(first, lease_id=_at_most(first.lease_id, number))
        for number in range(1, 6)
    ]
    ways = [(more, *rest), (first, first, *rest), (first, more, *rest), tuple(swapped)]
    ways += [(one, *rest) for one in neighbours]
    return [msgspec.structs.replace(event, charges=charges) for charges in ways]


def _at_most(lease_id: str, number: int) -> str:
    """Return the name of the lease of a number, or of `lease_id` where that came before it: one to
    come may become the gateway's own later, and was a stranger's when it was booked."""
    era, _, own = lease_id.partition(".")
    is_granted = own.isdecimal() and lease_id not in {one.format(era=era) for one in NOWHERE_LEASES}
    return f"{era}.{min(number, int(own)) if is_granted else 1}"


def poisons(event: UsageEvent, now: datetime) -> list[tuple[bytes, str]]:
    """Return bodies that can never be booked, each with the id that its dead letter has."""
    raw, own = msgspec.json.encode(event), event.event_id
    changes: tuple[dict[str, Any], ...] = (
        {"rating": 3},
        {"schema": event.schema + 1},
        {"client_request_id": REFUSED, "outcome": "completed"},
        {"input_tokens": event.cached_input_tokens - 1} if event.cached_input_tokens
        else {"output_tokens": -1},
        TOO_DEAR,
        {"organization_id": "örg"},
        {"project_id": "proj\n0"},
        {"endpoint": "über"},
        {"charges": (LeaseCharge("balance:ö", "nobody", 1),)},
        {"charges": (LeaseCharge("balance:org_0", "no\tbody", 1),)},
        {"charges": (LeaseCharge(LONGEST, LONGEST, 1),)},
    )  # fmt: skip
    bodies = [(msgspec.json.encode(_unchecked(event, change)), own) for change in changes]
    for name in ("nonsense", "ffffffff-ffff-7fff-bfff-ffffffffffff", _version_4(own)):
        bodies.append((raw.replace(own.encode(), name.encode()), name))
    old = _moved(own, now - timedelta(days=90, milliseconds=1))
    bodies.append((raw.replace(own.encode(), old.encode()), old))
    bodies.append((raw.replace(own.encode(), b"9" * 300), "9" * 200))
    return [*bodies, (b"{" + raw[:-1], ""), (raw[:-40], ""), (b'"' + own.encode() + b'"', "")]


def at_moment(event: UsageEvent, moment: datetime) -> UsageEvent:
    """Return an event as if its request had been received at another moment."""
    return msgspec.structs.replace(event, event_id=_moved(event.event_id, moment))


def _moved(event_id: str, moment: datetime) -> str:
    stamp = f"{milliseconds(moment):012x}"
    return f"{stamp[:8]}-{stamp[8:]}{event_id[13:]}"


def _version_4(event_id: str) -> str:
    return event_id[:14] + "4" + event_id[15:]


def _unchecked(event: UsageEvent, change: dict[str, Any]) -> dict[str, Any]:
    """Return what a broken gateway might write."""
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(event))
    return fields | change
