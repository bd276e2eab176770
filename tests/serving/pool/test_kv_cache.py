"""Requests that fit into an engine's KV cache: what is admitted, in which order, and who waits."""

import asyncio
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.contract.slot_shares import KvDemand, KvGrant
from serving.contract.units import TIERS, Tier
from serving.engine.events import TokenUsage
from serving.engine.simulated.engine import SimulatedEngine
from serving.engine.simulated.request import SimulatedRequest
from serving.engine.simulated.settings import SimulatorSettings
from serving.pool.pool import Pool, Slot
from serving.pool.prefix_history import BLOCK_BYTES
from serving.pool.replicas import Replica
from serving.pool.slot_request import PoolError, PoolOverloaded, SlotRequest
from tests.fixtures.catalog import replica
from tests.fixtures.demand import demand_of
from tests.serving.pool.cluster import leaping

CAPACITY = 200_000
SLOTS = 8


def pool_of(*capacities: int | None, slots: int = SLOTS, **options: Any) -> Pool:
    pool = Pool("dep", **options)
    set_capacities(pool, *capacities, slots=slots)
    return pool


def set_capacities(pool: Pool, *capacities: int | None, slots: int = SLOTS) -> None:
    records = [
        replica(f"http://r{number}", number, slots=slots, kv_capacity_tokens=capacity)
        for number, capacity in enumerate(capacities, start=1)
    ]
    pool.set_replicas({record.replica_id: record for record in records})


@dataclass
class Sink:
    """Hears of one answer of a simulated engine."""

    first: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    wants_tokens: bool = True

    def begin(self) -> None:
        self.first.set()

    def token(self, choice: int, index: int) -> None: ...

    def flush(self) -> None: ...

    def finish(self) -> None:
        self.ended.set()


class Scene:
    """A pool before one simulated engine, by a clock that leaps. `first_seconds` are the times to
    the first token, by organization."""

    def __init__(self, capacity: int | None) -> None:
        self.clock = asyncio.get_running_loop().time
        self.pool = pool_of(capacity, clock=self.clock)
        self.engine = SimulatedEngine(
            SimulatorSettings(
                slots=SLOTS,
                context_tokens=CAPACITY,
                kv_cache_tokens=CAPACITY,
                cache_blocks=0,
                itl_seconds=0.02,
                prefill_tokens_per_second=50_000,
            )
        )
        self.first_seconds: dict[str, list[float]] = defaultdict(list)
        self.refused: Counter[str] = Counter()

    async def ask(self, organization: str, input_tokens: int, output_tokens: int) -> None:
        began = self.clock()
        request = SlotRequest(
            organization,
            input_tokens=input_tokens,
            output_tokens_max=output_tokens,
            seconds_max=120.0,
        )
        try:
            async with self.pool.slot(request) as slot:
                sink = Sink()
                self.engine.submit(self.engine.prepare(_work(input_tokens, output_tokens)), sink)
                await sink.first.wait()
                slot.token_received()
                self.first_seconds[organization].append(self.clock() - began)
                await sink.ended.wait()
                slot.usage_known(TokenUsage(input_tokens, 0, output_tokens))
        except PoolOverloaded:
            self.refused[organization] += 1

    async def ask_often(self, organization: str, times: int, *tokens: int) -> None:
        """Ask once a second, whether or not what came before was answered."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(times):
                tasks.create_task(self.ask(organization, *tokens))
                await asyncio.sleep(1.0)


def _work(input_tokens: int, output_tokens: int) -> SimulatedRequest:
    return SimulatedRequest(
        *("m", b"word" * input_tokens, input_tokens, output_tokens, 1, (), 0),
        ignore_eos=True,
        cache_salt=None,
        is_chat=True,
        is_stream=True,
        include_usage=True,
        continuous_usage=False,
    )


async def eight_long_prompts_beside_short_requests(capacity: int | None) -> Scene:
    scene = Scene(capacity)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(8):
            tasks.create_task(scene.ask("long", 100_000, 200))
        await asyncio.sleep(0.1)
        tasks.create_task(scene.ask_often("short", 20, 200, 20))
    return scene


def test_eight_long_prompts_leave_a_neighbour_the_time_of_one_prefill() -> None:
    bounded = leaping(eight_long_prompts_beside_short_requests(CAPACITY))
    assert not bounded.refused
    assert max(bounded.first_seconds["short"]) <= 2.5, "a long prompt is read in 2 s"
    assert sum(seconds < 0.1 for seconds in bounded.first_seconds["short"]) >= 12
    assert max(bounded.first_seconds["long"]) <= 8 * 6.5, "each has its turn: 6 s for one"
    assert bounded.engine.counts["num_preemptions"] == 0
    assert bounded.pool.replicas["rep_1"].kv.tokens == 0


def test_with_an_unknown_capacity_all_go_to_the_engine_at_once_as_slots_say() -> None:
    unbounded = leaping(eight_long_prompts_beside_short_requests(None))
    assert max(unbounded.first_seconds["short"]) > 20.0, "they wait within the engine"
    assert unbounded.engine.counts["num_preemptions"] > 0
    assert unbounded.engine.sequences_max == SLOTS


async def hold(
    pool: Pool, request: SlotRequest, until: asyncio.Event, log: list[str] | None = None
) -> None:
    async with pool.slot(request) as slot:
        if log is not None:
            log.append(request.organization_id)
        await until.wait()
        slot.usage_known(TokenUsage(request.input_tokens, 0, 10))


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def sized(organization: str, tokens: int, **fields: Any) -> SlotRequest:
    return SlotRequest(organization, input_tokens=tokens, **fields)


async def test_a_large_request_keeps_its_turn_though_others_come_for_ever() -> None:
    pool, log = pool_of(CAPACITY), list[str]()
    ends = [asyncio.Event() for _ in range(6)]
    tasks = [asyncio.create_task(hold(pool, sized(f"m{n}", 30_000), ends[n])) for n in range(6)]
    await settle()
    end = asyncio.Event()
    tasks.append(asyncio.create_task(hold(pool, sized("large", 100_000), end, log)))
    await settle()
    for number in range(6):
        later = sized(f"later{number}", 30_000)
        tasks.append(asyncio.create_task(hold(pool, later, end, log)))
        small = sized(f"small{number}", 12_500)
        tasks.append(asyncio.create_task(hold(pool, small, end, log)))
        await settle()
    assert log == ["small0"], "so small that all slots of them leave it its room"
    for each in ends:
        each.set()
        await settle()
    assert "large" in log
    assert not any(name.startswith("later") for name in log[: log.index("large")])
    end.set()
    await asyncio.gather(*tasks)
    assert pool.replicas["rep_1"].kv.tokens == 0


async def test_one_that_is_larger_than_the_capacity_runs_alone() -> None:
    pool, log, ends = pool_of(CAPACITY), list[str](), [asyncio.Event() for _ in range(3)]
    requests = [sized("a", 10), sized("huge", CAPACITY + 1), sized("b", 10)]
    tasks = []
    for request, end in zip(requests, ends, strict=True):
        tasks.append(asyncio.create_task(hold(pool, request, end, log)))
        await settle()
    assert log == ["a"], "it has its turn when the replica runs nothing"
    ends[0].set()
    await settle()
    assert log == ["a", "huge"]
    ends[1].set()
    await settle()
    assert log == ["a", "huge", "b"]
    ends[2].set()
    await asyncio.gather(*tasks)


async def test_room_on_another_replica_is_taken_and_no_other_has_to_be_kept() -> None:
    pool, end, log = pool_of(CAPACITY, CAPACITY), asyncio.Event(), list[str]()
    requests = [sized("a", 150_000), sized("b", 150_000), sized("c", 100_000), sized("d", 40_000)]
    tasks = []
    for request in requests:
        tasks.append(asyncio.create_task(hold(pool, request, end, log)))
        await settle()
    assert log == ["a", "b", "d"], "room is kept on one replica alone"
    end.set()
    await asyncio.gather(*tasks)
    assert [one.kv.tokens for one in pool.replicas.values()] == [0, 0]


async def test_a_neighbour_is_not_refused_for_the_pace_of_those_that_wait_for_room() -> None:
    now = [100.0]
    pool, log = pool_of(CAPACITY, clock=lambda: now[0]), list[str]()
    ends = [asyncio.Event() for _ in range(20)]
    tasks = [asyncio.create_task(hold(pool, sized("long", 120_000), end, log)) for end in ends]
    for end in ends[:16]:
        await settle()
        now[0] += 40.0
        end.set()
    await settle()
    async with pool.slot(sized("short", 100)):
        assert log.count("long") == 17
    for end in ends:
        end.set()
    await asyncio.gather(*tasks)


async def test_a_gateway_fills_its_part_and_has_a_permit_for_one_request_that_is_larger() -> None:
    pool = pool_of(CAPACITY, share_of=lambda _: 4)
    [one], end, log = pool.replicas.values(), asyncio.Event(), list[str]()
    assert one.kv_tokens_max == CAPACITY // 2
    pool.set_kv_grants({"rep_1": KvGrant(50_000)})
    tasks = [asyncio.create_task(hold(pool, sized("a", 20_000), end, log))]
    large_end = asyncio.Event()
    for name, tokens in (("large", 60_000), ("larger", 70_000)):
        await settle()
        tasks.append(asyncio.create_task(hold(pool, sized(name, tokens), large_end, log)))
    await settle()
    assert log == ["a"]
    assert demand_of(pool).held["rep_1"].kv == KvDemand(CAPACITY, 50_000, 20_000, 0, 60_000)
    pool.set_kv_grants({"rep_1": KvGrant(50_000, 60_000)})
    pool.dispatch()
    await settle()
    assert log == ["a", "large"]
    tasks.append(asyncio.create_task(hold(pool, sized("b", 30_000), end, log)))
    await settle()
    assert log == ["a", "large", "b"], "the share is for others"
    assert demand_of(pool).held["rep_1"].kv == KvDemand(CAPACITY, 50_000, 50_000, 60_000, 70_000)
    large_end.set()
    await settle()
    assert log == ["a", "large", "b"], "a permit is for one request"
    assert demand_of(pool).held["rep_1"].kv == KvDemand(CAPACITY, 50_000, 50_000, 0, 70_000)
    tasks[2].cancel()
    await settle()
    pool.set_kv_grants({"rep_1": KvGrant(50_000, 70_000)})
    assert demand_of(pool).held["rep_1"].kv == KvDemand(CAPACITY, 50_000, 50_000), "given up"
    end.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert one.kv.tokens == 0


async def test_answers_count_by_what_an_organization_makes_and_by_what_is_made_already() -> None:
    now = [0.0]
    pool, end = pool_of(CAPACITY, clock=lambda: now[0]), asyncio.Event()
    [one] = pool.replicas.values()
    for _ in range(30):
        async with pool.slot(sized("brief", 1_000, output_tokens_max=4_000)) as slot:
            slot.usage_known(TokenUsage(1_000, 0, 20))
    async with pool.slot(sized("brief", 1_000, output_tokens_max=4_000)) as slot:
        assert 1_020 <= one.kv.tokens <= 1_025
        slot.service.progress = lambda: TokenUsage(1_000, 0, 600)
        now[0] += 1.0
        other = asyncio.create_task(hold(pool, sized("b", 10), end))
        await settle()
        assert one.kv.tokens == 1_000 + 600 + 256 + 10
        slot.service.progress = lambda: TokenUsage(1_000, 0, 3_990)
        now[0] += 1.0
        async with pool.slot(sized("c", 5)):
            assert one.kv.tokens == 1_000 + 4_000 + 10 + 5, "no more than it may make"
        slot.vacate()
        assert one.kv.tokens == 10
    end.set()
    await other
    assert one.kv.tokens == 0


async def test_a_beginning_that_running_requests_share_counts_once() -> None:
    pool, ends = pool_of(CAPACITY), [asyncio.Event() for _ in range(3)]
    [one] = pool.replicas.values()
    tasks = []
    for number, end in enumerate(ends):
        blocks = (*range(100), 1_000 + number)
        asked = sized("a", 15_000, prompt_bytes=120 * BLOCK_BYTES, prefix_blocks=blocks)
        tasks.append(asyncio.create_task(hold(pool, asked, end)))
        await settle()
    assert one.kv.tokens == 15_000 + 2 * (15_000 - 100 * 125)
    ends[0].set()
    await settle()
    assert one.kv.tokens == 15_000 + 15_000 - 100 * 125, "who goes on holds it"
    for end in ends:
        end.set()
    await asyncio.gather(*tasks)
    assert one.kv.tokens == 0


COMES = st.builds(
    SlotRequest,
    organization_id=st.sampled_from("abcd"),
    tier=st.sampled_from(TIERS),
    sequences=st.integers(1, 3),
    input_tokens=st.integers(1, 300),
    output_tokens_max=st.integers(0, 100),
    prompt_bytes=st.just(8 * BLOCK_BYTES),
    prefix_blocks=st.sampled_from([(), (1,), (1, 2), (1, 2, 3), (4, 5)]),
)
DEEDS = st.one_of(
    COMES,
    st.tuples(
        st.sampled_from(("end", "leave", "vacate", "hedge", "grow")),
        st.integers(0, 50),
    ),
    st.tuples(
        st.just("replicas"), st.lists(st.none() | st.integers(100, 400), min_size=1, max_size=3)
    ),
    st.tuples(st.just("share"), st.integers(1, 4)),
)


@dataclass(eq=False)
class Client:
    """One request, and the second try at it."""

    request: SlotRequest
    slot: Slot | None = None
    acts: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    task: asyncio.Task[None] = field(init=False)

    async def ask(self, pool: Pool) -> None:
        async with AsyncExitStack() as stack:
            self.slot = slot = await stack.enter_async_context(pool.slot(self.request))
            while (act := await self.acts.get()) != "end":
                if act == "vacate" and slot.service.vacated_at is None:
                    slot.vacate()
                elif act == "grow":
                    slot.service.progress = lambda: TokenUsage(self.request.input_tokens, 0, 90)
                elif act == "hedge":
                    try:
                        await stack.enter_async_context(slot.hedge_slot())
                    except PoolError:
                        continue
            slot.usage_known(TokenUsage(self.request.input_tokens, 0, 5))


class World:
    """Clients before replicas whose KV caches are bounded or unknown."""

    def __init__(self) -> None:
        self.now = 0.0
        self.share = 4
        self.pool = Pool(
            "dep",
            clock=lambda: self.now,
            share_of=lambda _: self.share,
            may_exceed=lambda _: False,
        )
        self.capacities: list[int | None] = [300]
        self.clients: list[Client] = []
        self.every: set[Replica] = set()
        self.set_replicas()
        for _ in range(100):
            self.pool.health.hedging.budget.record_request()

    def set_replicas(self) -> None:
        set_capacities(self.pool, *self.capacities, slots=4)
        self.every.update(self.pool.replicas.values())

    async def do(self, deed: Any) -> None:
        before = {one: set(one.kv.holdings) for one in self.every}
        self.now += 0.4
        if isinstance(deed, SlotRequest):
            client = Client(deed)
            client.task = asyncio.create_task(client.ask(self.pool))
            self.clients.append(client)
        elif deed[0] == "replicas":
            self.capacities = deed[1]
            self.set_replicas()
        elif deed[0] == "share":
            self.share = deed[1]
            self.pool.set_shares({})
        elif self.clients:
            client = self.clients[deed[1] % len(self.clients)]
            client.task.cancel() if deed[0] == "leave" else client.acts.put_nowait(deed[0])
        for _ in range(8):
            await asyncio.sleep(0)
        self.clients = [one for one in self.clients if not one.task.done()]
        self.check(before)

    def check(self, before: dict[Replica, set[Any]]) -> None:
        for one in self.every:
            kv, begun = one.kv, set(one.kv.holdings) - before.get(one, set())
            parts = [each.tokens for each in kv.holdings.values()]
            assert kv.tokens == sum(parts) + sum(block.tokens for block in kv._blocks.values())
            assert min([0, *parts]) == 0
            if begun and len(kv.holdings) > 1 and one.record.kv_capacity_tokens is not None:
                assert kv.tokens <= one.kv_tokens_max

    async def clear(self) -> None:
        self.share, self.capacities = 4, [400, None]
        self.set_replicas()
        for turn in range(200):  # whoever waits first may wait for those that run
            if self.clients:
                await self.do(("end", turn))
        assert not self.clients, "nobody is left waiting"


@settings(max_examples=200, deadline=None)
@given(st.lists(DEEDS, max_size=50))
def test_predictions_fit_or_are_alone_and_all_is_given_back(deeds: list[Any]) -> None:
    async def live() -> None:
        world = World()
        for deed in deeds:
            await world.do(deed)
        await world.clear()
        for one in world.every:
            assert (one.in_flight, one.kv.tokens) == (0, 0)
            assert not one.kv.holdings
            assert not one.kv._blocks

    asyncio.run(live())


@pytest.mark.parametrize("capacity", [None, CAPACITY])
async def test_a_capacity_that_is_no_longer_told_stops_nothing(capacity: int | None) -> None:
    pool, end, log = pool_of(CAPACITY), asyncio.Event(), list[str]()
    tasks = [asyncio.create_task(hold(pool, sized("a", 150_000), end, log)) for _ in range(2)]
    await settle()
    assert log == ["a"]
    record = pool.replicas["rep_1"].record
    pool.set_replicas({"rep_1": msgspec.structs.replace(record, kv_capacity_tokens=capacity)})
    await settle()
    assert log == ["a"] * (2 if capacity is None else 1)
    end.set()
    await asyncio.gather(*tasks)
    assert pool.replicas["rep_1"].kv.tokens == 0


@dataclass
class Waits:
    """What became of requests that had to wait for room, by organization."""

    served: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)

    async def ask(self, pool: Pool, request: SlotRequest, seconds: float) -> None:
        try:
            async with pool.slot(request):
                await asyncio.sleep(seconds)
                self.served[request.organization_id] += 1
        except PoolOverloaded as error:
            self.refused[request.organization_id, error.reason] += 1


async def a_flood_of_long_prompts(tier: Tier) -> Waits:
    """One comes each second, and one in six seconds has its turn; then neighbours come."""
    pool, waits = pool_of(CAPACITY, clock=asyncio.get_running_loop().time), Waits()
    long = sized("long", 120_000, seconds_max=30.0)
    async with asyncio.TaskGroup() as tasks:
        for second in range(120):
            tasks.create_task(waits.ask(pool, long, 6.0))
            if second > 60:
                short = sized("short", 1_000, tier=tier, seconds_max=2.0)
                tasks.create_task(waits.ask(pool, short, 0.5))
            if second in (70, 100):
                other = sized("other", 120_000, tier=tier, seconds_max=20.0)
                tasks.create_task(waits.ask(pool, other, 6.0))
            await asyncio.sleep(1.0)
    return waits


@pytest.mark.parametrize("tier", ["default", "priority"])
def test_who_would_wait_in_vain_for_room_is_told_at_once_and_no_neighbour_is(tier: Tier) -> None:
    waits = leaping(a_flood_of_long_prompts(tier))
    assert waits.served["long"] >= 0.9 * 120 / 6
    assert waits.refused["long", "too_long"] >= 0.5 * waits.refused.total()
    assert waits.served["short"] == 59
    assert waits.served["other"] == 2, "its turn is next, whatever the other waits for"
