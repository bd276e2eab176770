"""Full batches as the bytes that a gateway sends, encoded before any clock runs.

A few bodies are sent again and again; before each use their events get ids of the moment.
"""

import random
import secrets
import time
from collections.abc import Mapping, Sequence

import msgspec

from serving.contract.codec import decode, encode
from serving.contract.ids import new_id
from serving.contract.price import RATING, charge
from serving.contract.usage import EVENTS_MAX, LeaseCharge, UsageBatch, UsageEvent
from tests.benchmarks.books.deeds.world import Caller, price
from tests.fixtures.usage import METERS, NOW, make_batch

ID_FIELD = b'{"event_id":"'
ID_LENGTH = 36
SHIPPED_WITHIN_MS = 1000
"""Events are about this old when they are sent."""
REPLICAS = 4


class Body:
    """The bytes of one batch, and where its events' ids stand."""

    def __init__(self, events: Sequence[bytes], gateway: str) -> None:
        self._bytes = bytearray(encode(make_batch(events, gateway)))
        self._places = list(_places(self._bytes))

    @property
    def count(self) -> int:
        """How many events it has."""
        return len(self._places)

    def renewed(self) -> bytes:
        """Return the body with events that nobody has seen."""
        for place, event_id in zip(self._places, new_ids(self.count), strict=True):
            self._bytes[place : place + ID_LENGTH] = event_id
        return bytes(self._bytes)


def make_bodies(
    count: int, *, gateway: str, leases: Mapping[str, str], callers: Sequence[Caller]
) -> list[Body]:
    """Return full batches of requests by callers drawn at random, charged to a gateway's leases."""
    chance = random.Random(gateway)
    return [
        Body(
            [
                msgspec.json.encode(make_event(chance, chance.choice(callers), gateway, leases))
                for _ in range(EVENTS_MAX)
            ],
            gateway,
        )
        for _ in range(count)
    ]


def make_event(
    chance: random.Random,
    caller: Caller,
    gateway: str,
    leases: Mapping[str, str],
    event_id: str | None = None,
) -> UsageEvent:
    """Return a completed streamed request of some length, charged where there is a lease."""
    of = price()
    input_tokens, output_tokens = chance.randrange(20, 2000), chance.randrange(1, 400)
    cached = chance.choice((0, input_tokens // 3))
    due = charge(
        METERS, input_tokens=input_tokens, cached_input_tokens=cached, output_tokens=output_tokens
    ).total_nanos
    return UsageEvent(
        event_id=event_id or new_id(),
        gateway_id=gateway,
        organization_id=caller.organization_id,
        project_id=caller.project_id,
        key_id=caller.key_id,
        model_id=of.variant.model_id,
        variant_id=of.variant_id,
        deployment_id="dep_1",
        replica_id=f"rep_{chance.randrange(REPLICAS)}",
        price_id=of.id,
        endpoint="chat.completions",
        tier="default",
        outcome="completed",
        received_at=NOW,
        charges=tuple(
            LeaseCharge(budget_id, leases[budget_id], due)
            for budget_id in caller.budget_ids
            if budget_id in leases
        ),
        input_tokens=input_tokens,
        cached_input_tokens=cached,
        output_tokens=output_tokens,
        streamed=True,
        queue_seconds=chance.random() / 100,
        ttft_seconds=chance.random(),
        total_seconds=chance.random() * 5,
        rating=RATING,
    )


def new_ids(count: int) -> list[bytes]:
    """Return UUIDv7 of the last second as text, a few times faster than one by one."""
    now_ms = time.time_ns() // 1_000_000
    noise = secrets.token_hex(10 * count)
    return [
        _id(f"{now_ms - place * SHIPPED_WITHIN_MS // count:012x}", noise[20 * place :][:20])
        for place in range(count)
    ]


def _id(ms: str, noise: str) -> bytes:
    return f"{ms[:8]}-{ms[8:]}-7{noise[:3]}-a{noise[3:6]}-{noise[6:18]}".encode()


def _places(body: bytes | bytearray) -> list[int]:
    places, at = [], body.find(ID_FIELD)
    while at >= 0:
        places.append(at + len(ID_FIELD))
        at = body.find(ID_FIELD, at + ID_LENGTH)
    return places


def batch_of(body: bytes) -> UsageBatch:
    """Decode a body as control's internal API does."""
    return decode(body, UsageBatch)
