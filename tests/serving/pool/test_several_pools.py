"""Pools that one request may be worked on in: it waits before all, and goes on in the first."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.contract.units import TIERS
from serving.engine.events import TokenUsage
from serving.pool.overload import LoadShedder
from serving.pool.pool import Pool
from serving.pool.slot_request import NoReadyReplica, PoolError, PoolOverloaded, SlotRequest
from serving.pool.tier_queue import QueueLimits
from tests.fixtures import catalog

BOUNDS = QueueLimits(organization_requests=3, organization_tokens=300, requests=6, tokens=500)


def set_slots(pool: Pool, *slots: int, state: str = "ready") -> None:
    records = [
        msgspec.structs.replace(
            catalog.replica(f"http://{pool.deployment_id}{number}", number, slots=count),
            replica_id=f"{pool.deployment_id}_{number}",
            state=state,
        )
        for number, count in enumerate(slots)
    ]
    pool.set_replicas({one.replica_id: one for one in records})


def pools(*names: str, slots: int = 1, **options: Any) -> list[Pool]:
    # Time that stands still: what runs is charged by the second, and a busy machine loses some.
    made = [Pool(name, **{"clock": lambda: 0.0} | options) for name in names]
    for pool in made:
        set_slots(pool, slots)
    return made


@dataclass(eq=False)
class Client:
    """One request, the pools that it may go to, and those in whose lines it must stand."""

    request: SlotRequest
    pools: list[Pool]
    stands: set[Pool] = field(default_factory=set)
    served_in: list[Pool] = field(default_factory=list)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        self.task = asyncio.create_task(self.ask())

    async def ask(self) -> None:
        first, *others = self.pools
        self.stands = {pool for pool in self.pools if pool.is_open}
        async with first.slot(self.request, (), others) as slot:
            self.stands = set()
            self.served_in.append(slot.pool)
            await self.may_end.wait()
            slot.usage_known(TokenUsage(self.request.input_tokens, 0, 5))

    async def end(self) -> None:
        self.may_end.set()
        await self.task


async def settle() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


async def come(request: SlotRequest, *of: Pool) -> Client:
    client = Client(request, list(of))
    await settle()
    return client


async def test_who_waits_goes_on_in_the_first_pool_that_has_a_place() -> None:
    one, other = pools("one", "other")
    holders = [await come(SlotRequest("a"), one), await come(SlotRequest("a"), other)]
    waiting = await come(SlotRequest("b"), one, other)
    assert (len(one.queue), len(other.queue)) == (1, 1)
    await holders[1].end()
    await settle()
    assert waiting.served_in == [other]
    assert (len(one.queue), len(other.queue)) == (0, 0)
    assert (one.load_shedder.tokens, other.load_shedder.tokens) == (1, 1)
    await waiting.end()
    await holders[0].end()
    for pool in (one, other):
        assert not any(list(line.busy()) for line in pool.queue.tier_queues.values())


async def test_a_place_that_is_there_at_once_is_taken_ones_own_first() -> None:
    own, shared = pools("own", "shared")
    clients = [await come(SlotRequest("a"), own, shared) for _ in range(2)]
    assert [one.served_in for one in clients] == [[own], [shared]]
    for client in clients:
        await client.end()


async def test_a_more_urgent_request_goes_first_wherever_it_came_to() -> None:
    one, other = pools("one", "other")
    holders = [await come(SlotRequest("a"), one), await come(SlotRequest("a"), other)]
    patient = await come(SlotRequest("b", tier="flex"), other)
    urgent = await come(SlotRequest("c", tier="priority"), one, other)
    await holders[1].end()
    await settle()
    assert urgent.served_in == [other]
    assert not patient.served_in
    for client in (urgent, patient, holders[0]):
        await client.end()


async def test_those_who_may_go_to_one_pool_only_have_their_turns_there() -> None:
    own, shared = pools("own", "shared")
    taken = await come(SlotRequest("a"), own)
    busy = await come(SlotRequest("a"), shared)
    waiting = [await come(SlotRequest("a"), own, shared) for _ in range(6)]
    waiting += [await come(SlotRequest("b"), shared) for _ in range(6)]
    order, last = list[str](), busy
    for _ in range(8):
        await last.end()
        await settle()
        [last] = [one for one in waiting if one.served_in == [shared] and not one.task.done()]
        order.append(last.request.organization_id)
    assert order.count("b") in (4, 5), order
    assert all(order[place : place + 3].count("b") for place in range(6)), order
    for client in (taken, *waiting):
        await client.end()


async def test_who_waits_before_a_pool_that_ends_goes_on_before_the_others() -> None:
    one, other = pools("one", "other")
    holders = [await come(SlotRequest("a"), one), await come(SlotRequest("a"), other)]
    both, only = await come(SlotRequest("b"), one, other), await come(SlotRequest("b"), one)
    set_slots(one, 1, state="failed")
    await settle()
    assert isinstance(only.task.exception(), NoReadyReplica)
    assert (len(one.queue), len(other.queue)) == (0, 1)
    await holders[1].end()
    await settle()
    assert both.served_in == [other]
    again = await come(SlotRequest("b"), one, other)
    assert len(other.queue) == 1, "what comes to it now waits before the other"
    await both.end()
    await settle()
    assert again.served_in == [other]
    for client in (again, holders[0]):
        await client.end()


async def test_who_gives_up_leaves_all_lines() -> None:
    one, other = pools("one", "other")
    holders = [await come(SlotRequest("a"), one), await come(SlotRequest("a"), other)]
    leaver = await come(SlotRequest("b"), one, other)
    late = await come(SlotRequest("b", seconds_max=0.01), other, one)
    leaver.task.cancel()
    with pytest.raises(PoolOverloaded, match="waited"):
        await late.task
    assert (len(one.queue), len(other.queue)) == (0, 0)
    for client in holders:
        await client.end()
    assert (one.load_shedder.tokens, other.load_shedder.tokens) == (0, 0)


async def test_who_is_given_up_for_another_leaves_all_lines() -> None:
    one, other = pools("one", "other", bounds=QueueLimits(requests=2))
    holders = [await come(SlotRequest("a"), one), await come(SlotRequest("a"), other)]
    first, last = [await come(SlotRequest("a"), one, other) for _ in range(2)]
    newcomer = await come(SlotRequest("b"), other)
    with pytest.raises(PoolOverloaded, match="outweighed"):
        await last.task
    assert (len(one.queue), len(other.queue)) == (1, 2)
    for client in holders:
        await client.end()
    await settle()
    assert (first.served_in, newcomer.served_in) == ([one], [other])
    for client in (first, newcomer):
        await client.end()


async def test_who_leaves_just_as_it_is_given_a_place_gives_it_back_there() -> None:
    one, other = pools("one", "other")
    holders = [await come(SlotRequest("a"), one), await come(SlotRequest("a"), other)]
    leaver = await come(SlotRequest("b"), one, other)
    set_slots(other, 2)
    assert other.replicas["other_0"].in_flight == 2, "it has its place, and does not know yet"
    leaver.task.cancel()
    await settle()
    assert not leaver.served_in
    assert other.replicas["other_0"].in_flight == 1
    for client in holders:
        await client.end()
    assert not any(list(line.busy()) for line in other.queue.tier_queues.values())
    assert (one.load_shedder.tokens, other.load_shedder.tokens) == (0, 0)


async def test_nobody_goes_on_where_such_requests_broke_engines() -> None:
    one, other = pools("one", "other")
    poison = SlotRequest("poison")
    for _ in range(2):
        other.health.suspect(other.replicas["other_0"], poison.fingerprint)
    holder = await come(SlotRequest("a"), one)
    waiting = await come(poison, one, other)
    assert (len(one.queue), len(other.queue)) == (1, 0)
    await holder.end()
    await settle()
    assert waiting.served_in == [one]
    await waiting.end()


async def second_try(request: SlotRequest, excluded: str, *of: Pool) -> asyncio.Task[Pool]:
    async def ask() -> Pool:
        first, *others = of
        async with first.slot(request, [excluded], others) as slot:
            return slot.pool

    task = asyncio.create_task(ask())
    await settle()
    return task


async def test_a_second_try_goes_where_there_is_another_replica() -> None:
    one, other = pools("one", "other")
    assert await (await second_try(SlotRequest("a"), "one_0", one, other)) == other
    holder = await come(SlotRequest("a"), other)
    waiting = await second_try(SlotRequest("a"), "one_0", one, other)
    assert (len(one.queue), len(other.queue)) == (0, 1), "the replica that failed it has a place"
    await holder.end()
    assert await waiting == other


@pytest.mark.parametrize("state", ["draining", "failed"])
async def test_a_second_try_goes_to_the_same_replica_where_there_is_no_other(state: str) -> None:
    one, other = pools("one", "other")
    set_slots(other, 1, state=state)
    assert await (await second_try(SlotRequest("a"), "one_0", one, other)) == one


async def test_the_line_that_moves_faster_says_how_long_one_waits() -> None:
    now = [100.0]
    slow, fast = pools("slow", "fast", clock=lambda: now[0])

    async def moves(pool: Pool, seconds: float) -> list[Client]:
        """Have one after the other served there, while another waits; return those two."""
        pair = [await come(SlotRequest("a"), pool) for _ in range(2)]
        for _ in range(20):
            now[0] += seconds
            await pair[0].end()
            await settle()
            pair = [pair[1], await come(SlotRequest("a"), pool)]
        return pair

    others = [await moves(slow, 2.0), await moves(fast, 0.2)]
    with pytest.raises(PoolOverloaded, match="too_long"):
        await Client(SlotRequest("b", seconds_max=1.0), [slow]).task
    waiting = await come(SlotRequest("b", seconds_max=1.0), slow, fast)
    assert (len(slow.queue), len(fast.queue)) == (2, 2)
    await others[1][0].end()
    await settle()
    assert waiting.served_in == [fast]
    for client in (waiting, others[1][1], *others[0]):
        await client.end()


COMES = st.tuples(
    st.builds(
        SlotRequest,
        organization_id=st.sampled_from("abcd"),
        weight=st.integers(1, 3),
        tier=st.sampled_from(TIERS),
        sequences=st.integers(1, 3),
        input_tokens=st.integers(1, 200),
    ),
    st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True),
)
DEEDS = st.one_of(
    COMES,
    st.tuples(st.sampled_from(("end", "leave")), st.integers(0, 50)),
    st.tuples(st.just("slots"), st.integers(0, 2), st.integers(0, 4)),
    st.tuples(st.just("away"), st.integers(0, 2)),
)


class World:
    """Clients before three pools, and what must hold at any time."""

    def __init__(self) -> None:
        self.pressure = LoadShedder()
        self.pools = pools("x", "y", "z", slots=2, bounds=BOUNDS, all_pressure=self.pressure)
        self.clients: list[Client] = []

    async def do(self, deed: Any) -> None:
        if isinstance(deed[0], SlotRequest):
            request, places = deed
            self.clients.append(Client(request, [self.pools[place] for place in places]))
        elif deed[0] == "slots":
            set_slots(self.pools[deed[1]], deed[2], 1)
        elif deed[0] == "away":
            set_slots(self.pools[deed[1]], 1, state="draining")
            for client in self.clients:
                client.stands.discard(self.pools[deed[1]])
        elif self.clients:
            client = self.clients[deed[1] % len(self.clients)]
            client.may_end.set() if deed[0] == "end" else client.task.cancel()
        await settle()
        for client in [one for one in self.clients if one.task.done()]:
            error = None if client.task.cancelled() else client.task.exception()
            assert error is None or isinstance(error, PoolError)
            self.clients.remove(client)
        self.check()

    def check(self) -> None:
        assert all(len(one.served_in) <= 1 for one in self.clients), "placed twice"
        served = [one for one in self.clients if one.served_in]
        waiting = [one for one in self.clients if not one.served_in]
        tokens = sum(one.request.input_tokens for one in self.clients)
        assert self.pressure.tokens == sum(one.load_shedder.tokens for one in self.pools) == tokens
        assert all(one.stands for one in waiting)
        for pool in self.pools:
            here = sum(one.request.sequences for one in served if one.served_in == [pool])
            runs = sum(
                member.running for line in pool.queue.tier_queues.values() for member in line.busy()
            )
            assert runs == here
            assert len(pool.queue) == sum(pool in one.stands for one in waiting)
            head = pool.queue.first()
            if head is not None:
                assert pool._find_for(head.request, ()) is None, "there is room, and one waits"

    async def clear(self) -> None:
        for pool in self.pools:
            set_slots(pool, 4, 4)
        for place in range(100):
            await self.do(("end", place))
        assert not self.clients


@settings(max_examples=120, deadline=None)
@given(st.lists(DEEDS, max_size=60))
def test_nobody_waits_where_it_may_go_and_none_is_placed_twice(deeds: list[Any]) -> None:
    async def live() -> None:
        world = World()
        for deed in deeds:
            await world.do(deed)
        await world.clear()
        for pool in world.pools:
            assert pool.load_shedder.tokens == 0
            assert all(one.in_flight == 0 for one in pool.replicas.values())
            assert all(not list(line.busy()) for line in pool.queue.tier_queues.values())

    asyncio.run(live())
