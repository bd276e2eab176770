"""KV caches that several gateways share by the fleet's grants: they hold no more than there is, and
each request has its turn."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.contract.slot_shares import DemandReport, SlotSharesReply
from serving.fleet.slot_division import kv_parts
from serving.gateway.slot_shares import SILENT_SECONDS
from serving.internal_http import InternalCallError
from serving.pool.pool import Pool
from serving.pool.slot_request import SlotRequest
from tests.serving.pool.cluster import Cluster, leaping

SLOTS, CAPACITY = 8, 400
GATEWAYS = 3
HEARD_SECONDS = 1.5
"""Who lives is heard of by the fleet as often, and hears of it."""


def large(organization: str, tokens: int) -> SlotRequest:
    return SlotRequest(organization, input_tokens=tokens, seconds_max=10_000.0)


@dataclass(eq=False)
class Client:
    """One request at a gateway, and when it ends."""

    end: asyncio.Event
    task: asyncio.Task[None]
    is_running: bool = False


class World:
    """Gateways before replicas whose KV caches the fleet divides; reports are made by hand, and may
    be lost on their way back."""

    def __init__(self, gateways: int = GATEWAYS, capacity: int = CAPACITY) -> None:
        self.cluster = Cluster(gateways, SLOTS, replicas=2, kv_capacity_tokens=capacity)
        self.capacity = capacity
        self.now = 0.0
        self.cluster.clock = lambda: self.now
        self.clients: list[Client] = []
        self.heard_at = [0.0] * gateways
        self.is_lost = False
        for reporter in self.cluster.reporters:
            reporter._post = self.lossy(reporter._post)  # type: ignore[method-assign]

    def lossy(self, post: Callable[..., Awaitable[SlotSharesReply]]) -> Any:
        async def send(report: DemandReport, seconds: float) -> SlotSharesReply:
            reply = await post(report, seconds)
            if self.is_lost:
                raise InternalCallError("lost")
            return reply

        return send

    async def report(self, gateway: int, *, is_lost: bool = False) -> None:
        self.is_lost = is_lost
        if await self.cluster.reporters[gateway].report():
            await self.cluster.reporters[gateway].report()
        if not is_lost:
            self.heard_at[gateway] = self.now

    async def _ask(self, pool: Pool, request: SlotRequest, client: Client) -> None:
        async with pool.slot(request):
            client.is_running = True
            self.check()
            await client.end.wait()

    def ask(self, gateway: int, tokens: int) -> Client:
        client = Client(asyncio.Event(), None)  # type: ignore[arg-type]
        request = large(f"org_{tokens % 4}", tokens)
        client.task = asyncio.create_task(self._ask(self.cluster.pools[gateway], request, client))
        self.clients.append(client)
        return client

    def check(self) -> None:
        """All gateways together hold what there is, or one request runs alone."""
        for replica_id in self.cluster.slots:
            every = [pool.replicas[replica_id] for pool in self.cluster.pools]
            held = sum(one.kv.tokens for one in every)
            assert held <= self.capacity or sum(len(one.kv.holdings) for one in every) == 1
            assert sum(one.in_flight for one in every) <= SLOTS

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        self.clients = [one for one in self.clients if not one.task.done()]
        self.check()

    async def do(self, deed: str, gateway: int, number: int) -> None:
        running = [one for one in self.clients if one.is_running]
        if deed == "ask":
            self.ask(gateway, number)
        elif deed == "end" and running:
            running[number % len(running)].end.set()
        elif deed == "leave" and self.clients:
            self.clients[number % len(self.clients)].task.cancel()
        elif deed in ("report", "lost"):
            await self.report(gateway, is_lost=deed == "lost")
        else:
            self.now += number / 500
        await self.settle()
        for late, at in enumerate(self.heard_at):
            if self.now - at >= HEARD_SECONDS:
                await self.report(late)
                await self.settle()

    async def clear(self) -> None:
        """Let all end, the oldest first."""
        for _ in range(20 + 8 * len(self.clients)):
            for gateway in range(len(self.heard_at)):
                await self.report(gateway)
                await self.settle()
            self.now += 0.2
            if running := [one for one in self.clients if one.is_running]:
                running[0].end.set()
                await self.settle()
        assert not self.clients, "nobody is left waiting"


DEEDS = st.tuples(
    st.sampled_from(("ask", "ask", "end", "end", "leave", "report", "report", "lost", "time")),
    st.integers(0, GATEWAYS - 1),
    st.integers(1, CAPACITY + 50),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(DEEDS, max_size=80))
def test_together_they_hold_no_more_than_there_is_or_one_runs_alone(
    deeds: list[tuple[str, int, int]],
) -> None:
    async def live() -> None:
        world = World()
        for deed in deeds:
            await world.do(*deed)
        await world.clear()
        for pool in world.cluster.pools:
            for one in pool.replicas.values():
                assert (one.in_flight, one.kv.tokens, one.kv.permit_used) == (0, 0, 0)

    leaping(live())


LONG, SHORT, MIDDLE = large("long", 100_000), large("short", 200), large("middle", 40_000)
LONG_SECONDS = 6.0
"""As long prompts take: 2 s to be read, 4 s to be answered."""


class Watched(Cluster):
    """Gateways before one KV cache of 200,000 tokens. `tokens_max` is the most that all of them
    held at once, `waits` are how long requests waited, by organization."""

    def __init__(self, gateways: int) -> None:
        super().__init__(gateways, SLOTS, kv_capacity_tokens=200_000)
        self.tokens_max = 0
        self.is_down = False
        self.waits: dict[str, list[float]] = {}
        for reporter in self.reporters:
            reporter._post = self.answered(reporter._post)  # type: ignore[method-assign]

    def answered(self, post: Callable[..., Awaitable[SlotSharesReply]]) -> Any:
        async def send(report: DemandReport, seconds: float) -> SlotSharesReply:
            if self.is_down:
                raise InternalCallError("down")
            return await post(report, seconds)

        return send

    async def ask_for_ever(self, gateway: int, request: SlotRequest, seconds: float) -> None:
        await asyncio.sleep(1.0)
        while True:
            came_at = self.clock()
            async with self.pools[gateway].slot(request):
                held = sum(pool.replicas["rep_1"].kv.tokens for pool in self.pools)
                self.tokens_max = max(self.tokens_max, held)
                waited = self.clock() - came_at
                self.waits.setdefault(request.organization_id, []).append(waited)
                await asyncio.sleep(seconds)


async def long_prompts_through_four_gateways() -> Watched:
    cluster = Watched(4)
    long = [(gateway, LONG, LONG_SECONDS) for gateway in range(4) for _ in range(2)]
    short = [(gateway, SHORT, 0.5) for gateway in range(4)]
    await cluster.run(200.0, *long, *short)
    return cluster


def test_long_prompts_through_four_gateways_take_turns_beside_short_requests() -> None:
    cluster = leaping(long_prompts_through_four_gateways())
    assert cluster.tokens_max <= 200_000
    assert max(cluster.waits["short"]) <= 1.0, "each gateway keeps a part for others"
    turns = 200.0 / (LONG_SECONDS + 1.0)
    assert len(cluster.waits["long"]) >= 0.9 * turns
    assert max(cluster.waits["long"]) <= 10 * (LONG_SECONDS + 1.0), "each has its turn: eight wait"


async def middling_prompts_beside_long_ones() -> Watched:
    """Of a size that fits a gateway's part, but not what a long prompt leaves of it."""
    cluster = Watched(4)
    long = [(gateway, LONG, LONG_SECONDS) for gateway in range(3) for _ in range(2)]
    short = [(3, large("small", 3_000), 1.0) for _ in range(20)]
    await cluster.run(300.0, *long, *short, (3, MIDDLE, 1.0))
    return cluster


def test_one_that_long_prompts_leave_no_room_has_its_turn_among_them() -> None:
    cluster = leaping(middling_prompts_beside_long_ones())
    assert cluster.tokens_max <= 200_000
    assert max(cluster.waits["middle"]) <= 3 * (LONG_SECONDS + 1.0)
    assert max(cluster.waits["long"]) <= 10 * (LONG_SECONDS + 1.0)
    assert len(cluster.waits["small"]) >= 300


async def one_for_which_all_others_wait() -> Watched:
    cluster = Watched(3)
    small = [(gateway, large("small", 10_000), 1.0) for gateway in range(3) for _ in range(8)]
    await cluster.run(100.0, *small, (0, large("huge", 300_000), 5.0))
    return cluster


def test_one_that_is_larger_than_the_cache_has_its_turn_alone() -> None:
    cluster = leaping(one_for_which_all_others_wait())
    assert cluster.tokens_max == 300_000
    assert max(cluster.waits["huge"]) <= 3.0
    assert max(cluster.waits["small"]) <= 10.0, "they wait for it, and for each other"


async def without_a_fleet(*, is_down_at_first: bool) -> Watched:
    cluster = Watched(4)
    cluster.is_down = is_down_at_first
    for shares in cluster.shares:
        shares._gateways = lambda: 4
    long = [(gateway, LONG, 60.0) for gateway in range(4) for _ in range(2)]
    running = asyncio.ensure_future(cluster.run(20.0, *long))
    await asyncio.sleep(0.5)
    cluster.is_down = True
    await running
    return cluster


@pytest.mark.parametrize("is_down_at_first", [True, False])
def test_without_a_fleet_each_gateway_runs_one_beyond_its_part_and_no_more(
    is_down_at_first: bool,
) -> None:
    cluster = leaping(without_a_fleet(is_down_at_first=is_down_at_first))
    assert len(cluster.waits["long"]) == 4
    assert cluster.tokens_max == 400_000
    assert max(cluster.waits["long"]) <= (0.0 if is_down_at_first else SILENT_SECONDS + 0.5)


async def alone(*tokens: int) -> Watched:
    cluster = Watched(1)
    await cluster.run(30.0, *[(0, large("long", each), LONG_SECONDS) for each in tokens])
    return cluster


def test_a_single_gateway_needs_no_permit() -> None:
    cluster = leaping(alone(100_000, 100_000))
    assert cluster.waits["long"] == [0.0] * len(cluster.waits["long"])
    cluster = leaping(alone(300_000))
    assert cluster.waits["long"] == [0.0] * len(cluster.waits["long"])


def test_a_permit_that_nobody_uses_goes_to_the_next() -> None:
    async def live() -> None:
        world = World(2, capacity=400)
        for _ in range(3):
            await world.report(0)
            await world.report(1)
        first, second = world.ask(0, 390), world.ask(1, 390)
        await world.settle()
        for pool in world.cluster.pools:
            assert not pool.replicas["rep_1"].in_flight
        for _ in range(4):
            for gateway in range(2):
                await world.report(gateway)
                await world.settle()
        assert first.is_running
        assert second.is_running, "on another replica"
        third = world.ask(0, 390)
        for _ in range(3):
            for gateway in range(2):
                await world.report(gateway)
                await world.settle()
        assert not third.is_running
        third.task.cancel()
        first.end.set()
        await world.settle()
        fourth = world.ask(1, 390)
        for _ in range(4):
            for gateway in range(2):
                await world.report(gateway)
                await world.settle()
        assert fourth.is_running
        for client in (second, fourth):
            client.end.set()
        await world.settle()

    leaping(live())


@given(
    st.integers(0, 1_000),
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 600)), min_size=1, max_size=5),
)
def test_parts_of_a_cache_follow_slots_beside_what_is_held(
    tokens: int, gateways: list[tuple[int, int]]
) -> None:
    slots = {str(number): own for number, (own, _) in enumerate(gateways)}
    held = {str(number): own for number, (_, own) in enumerate(gateways)}
    parts = kv_parts(tokens, slots, held)
    beyond = {one for one, part in parts.items() if held[one] > part}
    taken = sum(max(part, held[one]) for one, part in parts.items())
    assert taken <= max(tokens, sum(held[one] for one in beyond))
    for one, part in parts.items():
        assert part <= tokens * slots[one] / (sum(slots.values()) or 1)
        for other in parts.keys() - beyond:
            if one not in beyond:
                apart = part * slots[other] - parts[other] * slots[one]
                assert abs(apart) <= max(slots[one], slots[other])
