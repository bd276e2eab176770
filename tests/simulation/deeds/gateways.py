"""What gateways do: ask for leases, ship what they wrote down, die, have clocks that are off."""

import random
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from billing.credit.services.leases import ClockAheadError, answer
from billing.metering.ingest import ingest
from serving.contract.codec import decode, encode
from serving.contract.lease import LeaseReply, LeaseRequest
from serving.contract.usage import UsageEvent
from tests.simulation.audit import content_of
from tests.simulation.cast import SKEW_MAX_SECONDS, Cast, Prepared
from tests.simulation.gateway import Gateway
from tests.simulation.odd import spoil
from tests.simulation.oracle import require
from tests.simulation.plan import Deed
from tests.simulation.writing import id_meant

SKEWS = (300, 301)
"""The most that a clock may be ahead, and what must be refused."""
ODD_SHARE = 0.4
"""How often a gateway that ships has written something odd."""


def _poll(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    gateway, now = cast.gateways[deed.actor], cast.now
    gateway.serve(rng, rng.randint(1, 7))
    request = gateway.poll(rng)
    words = (
        f"{gateway.gateway_id} polls with {len(request.asks)} asks, {len(request.returns)} returns"
    )
    return Prepared(
        words,
        lambda: through_contract(request, now=now),
        lambda reply: gateway.hear(request, reply, rng),
        (ClockAheadError,) if gateway.is_ahead else (),
        request,
        gateway.is_ahead,
        is_brief=True,
    )


def through_contract(request: LeaseRequest, *, now: datetime) -> LeaseReply:
    """Poll as over the wire: both sides read what the contract lets them say."""
    reply = answer(decode(encode(request), LeaseRequest), now=now)
    return decode(encode(reply), LeaseReply)


def _ship(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared | None:
    gateway, now = cast.gateways[deed.actor], cast.now
    gateway.serve(rng, rng.randint(0, 4))
    if rng.random() < ODD_SHARE:
        spoil(gateway, rng)
    batch = gateway.batch(rng)
    if not batch.events:
        return None
    return Prepared(
        f"{gateway.gateway_id} ships {len(batch.events)} events",
        lambda: ingest(batch, now=now),
        lambda receipt: hear_receipt(cast, gateway, batch, receipt),
        (ClockAheadError,) if gateway.is_ahead else (),
        must_fail=gateway.is_ahead,
    )


def hear_receipt(cast: Cast, gateway: Gateway, batch: Any, receipt: Any) -> None:
    """Note what billing says it has committed."""
    parts = receipt.accepted + receipt.duplicates + len(receipt.dead_lettered)
    require(parts == len(batch.events), "A receipt accounts for its batch", receipt)
    gateway.acknowledge(batch)
    letters = Counter(one.event_id for one in receipt.dead_lettered)
    journal, payloads = gateway.journal, [bytes(raw) for raw in batch.events]
    poison = {raw for raw in payloads if raw in journal.poison}
    wanted = Counter(journal.poison[raw] for raw in poison)
    require(not wanted - letters, "What cannot be booked is told", wanted, letters)
    cast.poisoned |= poison
    dead = {id_meant(one) for one in letters.keys() - wanted.keys()}
    cast.dead |= dead
    for raw in payloads:
        if raw not in poison and journal.payloads[raw].event_id not in dead:
            _note_booked(cast, journal.payloads[raw])


def _note_booked(cast: Cast, event: UsageEvent) -> None:
    cast.acknowledged.add(event.event_id)
    if event.outcome != "gateway_lost":
        cast.acknowledged_real.add(event.event_id)
        cast.contents.setdefault(event.event_id, set()).add(content_of(event))


def _die(cast: Cast, deed: Deed, rng: random.Random, name: str) -> None:
    cast.gateways[deed.actor].die(rng, journal_is_lost=rng.random() < 0.3)


def _skew(cast: Cast, deed: Deed, rng: random.Random, name: str) -> None:
    seconds = rng.choice((*SKEWS, rng.randint(-SKEW_MAX_SECONDS, SKEW_MAX_SECONDS)))
    cast.gateways[deed.actor].skew = timedelta(seconds=seconds)


def _repeat(cast: Cast, deed: Deed, rng: random.Random, name: str) -> None:
    cast.gateways[deed.actor].repeat_otherwise(rng)


DEEDS = {"poll": _poll, "ship": _ship, "die": _die, "skew": _skew, "repeat": _repeat}
