"""Who would wait in vain is told so at once: a queue by a clock of its own, before slots that are
each taken for two thirds of a second."""

import asyncio
import heapq
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

import pytest

from serving.contract.tiers import DEFAULT_GUARANTEES
from serving.contract.units import TIERS, Tier
from serving.engine.events import TokenUsage
from serving.pool.queue import FairQueue, Waiter
from serving.pool.slot_request import PoolOverloaded, SlotRequest
from serving.pool.tier_queue import BOUNDS, ServiceCharge

SLOTS = 64
SECONDS_EACH = 2 / 3
CAPACITY = SLOTS / SECONDS_EACH
"""Requests a second: 96."""
PATIENCE = 1.5
SECONDS, SKIP_SECONDS = 12.0, 4.0


@dataclass
class World:
    """`told` counts what became of whoever came after the beginning, by tier."""

    now: float = 0.0
    free: int = SLOTS
    told: Counter[tuple[str, str]] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)
    coming: list[tuple[float, int, Any]] = field(default_factory=list)
    came_at: dict[Waiter, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queue = FairQueue(lambda: self.now, BOUNDS)
        self._numbers = count()

    def at(self, moment: float, what: Any) -> None:
        heapq.heappush(self.coming, (moment, next(self._numbers), what))

    def live(self) -> None:
        while self.coming:
            self.now, _, what = heapq.heappop(self.coming)
            if isinstance(what, SlotRequest):
                self.comes(what)
            elif isinstance(what, ServiceCharge):
                self.free += 1
                self.queue.settle(what, TokenUsage(60, 0, 16))
                self.queue.end(what)
            elif not what.result.done():
                self.tell(self.queue.give_up(what))
                what.result.cancel()
            self.call()

    def comes(self, request: SlotRequest) -> None:
        if self.free and self.queue.is_first(request.tier):
            self.start(self.queue.serve_at_once(request), self.now)
            return
        try:
            waiter = self.queue.join(request, ())
        except PoolOverloaded as refused:
            self.tell(refused)
            self.told[request.tier, "refused"] += self.now > SKIP_SECONDS
            return
        self.came_at[waiter] = self.now
        self.at(self.now + request.seconds_max, waiter)

    def call(self) -> None:
        while self.free and (waiter := self.queue.first()) is not None:
            service = self.queue.serve(waiter)
            waiter.result.set_result(PoolOverloaded("waited"))  # whatever: it waits no longer
            self.start(service, self.came_at[waiter])

    def start(self, service: ServiceCharge, came_at: float) -> None:
        self.free -= 1
        self.at(self.now + SECONDS_EACH, service)
        if SKIP_SECONDS < self.now <= SECONDS:
            self.told[service.request.tier, "served"] += 1
            self.waits.append(self.now - came_at)

    def tell(self, refused: PoolOverloaded) -> None:
        self.told["", refused.reason] += self.now > SKIP_SECONDS


def request(
    organization: int, tier: Tier = "default", seconds_max: float = PATIENCE
) -> SlotRequest:
    return SlotRequest(
        f"org_{organization}",
        tier=tier,
        input_tokens=60,
        output_tokens_max=16,
        seconds_max=seconds_max,
    )


def overload(load: float, organizations: int, *tiers: Tier, seed: int = 1) -> World:
    """Let requests come by chance, so many times what there are slots for."""

    async def live() -> World:
        chance, world, at = Random(seed), World(), 0.0
        while at < SECONDS:
            at += chance.expovariate(load * CAPACITY)
            tier = chance.choice(tiers or ("default",))
            world.at(at, request(chance.randrange(organizations), tier))
        world.live()
        return world

    return asyncio.run(live())


@pytest.mark.parametrize("organizations", [1, 10, 100])
@pytest.mark.parametrize("load", [2, 5])
def test_slots_stay_full_and_hardly_anybody_waits_in_vain(load: int, organizations: int) -> None:
    world = overload(load, organizations)
    served = world.told["default", "served"] / (SECONDS - SKIP_SECONDS)
    assert served >= 0.97 * CAPACITY
    early, late = world.told["", "too_long"], world.told["", "waited"]
    assert late <= (0.01 if organizations < 100 else 0.06) * (early + late)
    assert max(world.waits) <= PATIENCE
    assert not world.told["", "organization_full"]


def test_at_three_quarters_of_the_capacity_nobody_is_refused() -> None:
    world = overload(0.75, 10)
    assert not [cause for tier, cause in world.told if not tier]


def test_less_urgent_tiers_know_at_once_that_others_get_all_but_their_shares() -> None:
    world = overload(2, 10, *TIERS)
    early, late = world.told["", "too_long"], world.told["", "waited"]
    assert late <= 0.06 * (early + late)
    asked = CAPACITY / 2 * (SECONDS - SKIP_SECONDS)
    assert world.told["priority", "served"] >= 0.9 * asked
    assert world.told["priority", "refused"] <= 0.02 * asked
    for tier in TIERS:
        guaranteed = min(asked, DEFAULT_GUARANTEES[tier] * 2 * asked)
        assert world.told[tier, "served"] >= 0.8 * guaranteed, tier
    assert world.told["flex", "refused"] + world.told["batch", "refused"] >= 1.6 * asked


def test_what_was_shed_is_taken_again_once_there_is_room() -> None:
    async def live() -> World:
        chance, world = Random(3), World()
        for number in range(2_000):  # ten seconds of twice the capacity, then of half of it
            world.at(number / (2 * CAPACITY), request(chance.randrange(10)))
        for number in range(500):
            world.at(13.0 + number / (0.5 * CAPACITY), request(chance.randrange(10), "batch"))
        world.live()
        return world

    world = asyncio.run(live())
    assert not world.told["batch", "refused"]


def test_a_burst_that_fits_is_not_refused_for_what_came_before() -> None:
    async def live() -> World:
        world = World()
        for number in range(600):
            world.at(5.0 + number / CAPACITY, request(number % 10))
        for number in range(100):
            world.at(11.6, request(number % 10, seconds_max=2.0))
        world.live()
        return world

    world = asyncio.run(live())
    assert not world.told["default", "refused"]
