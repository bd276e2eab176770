"""Replicas that are far slower than their peers are put out, never the last, and tried again."""

import asyncio
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.engine.events import TokenUsage
from serving.pool.pool import Pool
from serving.pool.replicas import SLOW_SECONDS, Replica
from serving.pool.slot_request import SlotRequest
from tests.fixtures.catalog import replica


@dataclass
class World:
    """A pool whose replicas take so long to a first token for each thousand tokens they read, and
    so long for each after it."""

    count: int
    prefill: dict[str, float] = field(default_factory=dict)
    pace: dict[str, float] = field(default_factory=dict)
    now: float = 1_000.0
    pool: Pool = field(init=False)

    def __post_init__(self) -> None:
        self.pool = Pool("dep", clock=lambda: self.now)
        records = [replica(f"http://r{n}", n) for n in range(1, self.count + 1)]
        self.pool.set_replicas({record.replica_id: record for record in records})

    @property
    def out(self) -> set[str]:
        """Who is out for being slow, or on trial."""
        return {id_ for id_, one in self.pool.replicas.items() if one.slow_until}

    def usable(self) -> list[Replica]:
        return [one for one in self.pool.replicas.values() if one.is_usable(self.now)]

    async def serve(self, one: Replica, tokens: TokenUsage) -> None:
        """Have one replica answer a request, whatever routing would say."""
        others = [id_ for id_ in self.pool.replicas if id_ != one.record.replica_id]
        async with self.pool.slot(SlotRequest("a", input_tokens=tokens.input), others) as slot:
            assert slot.replica is one
            read = tokens.input - tokens.cached_input
            self.now += read / 1_000 * self.prefill.get(one.record.replica_id, 0.1)
            slot.token_received()
            self.now += (tokens.output - 1) * self.pace.get(one.record.replica_id, 0.01)
            slot.usage_known(tokens)

    async def rounds(self, count: int, *sizes: tuple[int, int]) -> None:
        """Let each usable replica answer prompts of so many tokens, of which some are cached."""
        for _ in range(count):
            for one in self.usable():
                for size, cached in sizes or ((1_000, 0),):
                    await self.serve(one, TokenUsage(size, cached, 20))
            self.now += 0.5


async def test_a_replica_whose_first_tokens_take_far_longer_is_put_out() -> None:
    world = World(3, prefill={"rep_2": 0.5})
    await world.rounds(12)
    assert world.out == {"rep_2"}
    assert {one.record.replica_id for one in world.usable()} == {"rep_1", "rep_3"}


async def test_nothing_is_remembered_of_who_is_gone() -> None:
    world = World(2)
    request = SlotRequest("a", tier="priority", input_tokens=100)
    async with world.pool.slot(request) as slot:
        left = {id_: one for id_, one in world.pool.replicas.items() if one is not slot.replica}
        world.pool.set_replicas({id_: one.record for id_, one in left.items()})
        world.now += 1.0
        slot.token_received()
        slot.usage_known(TokenUsage(100, 0, 20))
    health = world.pool.health
    outliers = health._outliers
    for times in (health.hedging.times, outliers._first, outliers._each):
        assert times.sizes_of(slot.replica.record.replica_id) == []
    assert outliers._looked_at.keys() <= left.keys()


async def test_so_is_one_whose_tokens_come_far_slower() -> None:
    world = World(2, pace={"rep_1": 0.05})
    await world.rounds(12)
    assert world.out == {"rep_1"}


async def test_twice_as_slow_is_not_far_slower() -> None:
    world = World(3, prefill={"rep_2": 0.2}, pace={"rep_2": 0.02})
    await world.rounds(30)
    assert not world.out


async def test_long_prompts_make_no_replica_look_slow() -> None:
    world = World(3)
    for _ in range(20):
        for number, one in enumerate(world.usable()):
            await world.serve(one, TokenUsage(32_000 if number == 1 else 500, 0, 20))
    assert not world.out


async def test_nor_does_a_cold_cache() -> None:
    world = World(3)
    for _ in range(20):
        for number, one in enumerate(world.usable()):
            await world.serve(one, TokenUsage(32_000, 0 if number == 1 else 31_500, 20))
            await world.serve(one, TokenUsage(500, 0, 20))
    assert not world.out


async def test_few_answers_put_nobody_out() -> None:
    world = World(3, prefill={"rep_2": 5.0})
    await world.rounds(7)
    assert not world.out


async def test_one_request_tries_it_again_and_a_failed_trial_is_longer() -> None:
    world = World(3, prefill={"rep_2": 0.5})
    await world.rounds(12)
    sick = world.pool.replicas["rep_2"]
    for again in (1, 2, 4):
        assert sick.slow_until == pytest.approx(sick.slow_at + SLOW_SECONDS * again)
        while not sick.is_usable(world.now):
            await world.rounds(1)
        async with world.pool.slot(SlotRequest("a"), ["rep_1", "rep_3"]) as slot:
            assert (slot.replica, sick.is_usable(world.now)) == (sick, False)
        await world.serve(sick, TokenUsage(1_000, 0, 20))
        assert not sick.is_usable(world.now)


async def test_it_is_back_once_it_is_as_fast_as_others() -> None:
    world = World(3, prefill={"rep_2": 0.5})
    await world.rounds(12)
    world.prefill.clear()
    while not world.pool.replicas["rep_2"].is_usable(world.now):
        await world.rounds(1)
    await world.serve(world.pool.replicas["rep_2"], TokenUsage(1_000, 0, 20))
    assert not world.out
    await world.rounds(12)
    assert not world.out


async def test_what_began_before_it_was_put_out_is_no_trial() -> None:
    world = World(3, prefill={"rep_2": 0.5})
    sick = world.pool.replicas["rep_2"]
    async with world.pool.slot(SlotRequest("a"), ["rep_1", "rep_3"]) as early:
        assert early.replica is sick
        early.token_received()
        await world.rounds(12)
        assert world.out == {"rep_2"}
        world.now = sick.slow_until + 1.0
        early.usage_known(TokenUsage(1_000, 0, 20))
    assert world.out == {"rep_2"}


async def test_who_waits_is_woken_when_one_is_back() -> None:
    world = World(2, prefill={"rep_2": 0.5})
    await world.rounds(12)
    sick = world.pool.replicas["rep_2"]
    world.now = sick.slow_until + 1.0
    world.prefill.clear()
    async with world.pool.slot(SlotRequest("b"), ["rep_1"]) as trial:
        for _ in range(8):
            world.pool.replicas["rep_1"].in_flight += 1
        waiting = asyncio.create_task(world.pool.slot(SlotRequest("c")).__aenter__())
        await asyncio.sleep(0)
        assert len(world.pool.queue) == 1
        trial.token_received()
        trial.usage_known(TokenUsage(1_000, 0, 20))
        slot = await waiting
    assert slot.replica is sick


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 7), st.integers(0, 1_000))
def test_the_last_that_works_is_never_put_out_nor_more_than_a_third(count: int, seed: int) -> None:
    async def live() -> None:
        chance, world = Random(seed), World(count)
        ids = list(world.pool.replicas)
        for _ in range(40):
            world.prefill = {id_: chance.choice((0.1, 0.1, 1.0, 9.0)) for id_ in ids}
            for one in world.usable():
                for _ in range(4):
                    if one.is_usable(world.now):
                        await world.serve(one, TokenUsage(chance.choice((100, 1_000)), 0, 20))
            world.now += 0.5
            assert world.usable()
            assert len(world.out) <= max(1, count // 3)
            assert len(world.out) < count

    asyncio.run(live())
