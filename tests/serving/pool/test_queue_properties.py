"""The pool under any sequence of comings, endings and leavings."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from serving.contract.units import TIERS
from serving.pool.pool import Pool
from serving.pool.slot_request import PoolError, SlotRequest
from serving.pool.tier_queue import QueueLimits
from tests.fixtures.catalog import replica

BOUNDS = QueueLimits(organization_requests=3, organization_tokens=300, requests=6, tokens=500)

COMES = st.builds(
    SlotRequest,
    organization_id=st.sampled_from("abcd"),
    weight=st.integers(1, 3),
    tier=st.sampled_from(TIERS),
    sequences=st.integers(1, 4),
    input_tokens=st.integers(1, 200),
    is_paying=st.booleans(),
)
DEEDS = st.one_of(
    COMES,
    st.tuples(st.sampled_from(("end", "leave")), st.integers(0, 50)),
    st.tuples(st.just("slots"), st.integers(0, 6)),
)


@dataclass(eq=False)
class Client:
    """One request and how it stands."""

    request: SlotRequest
    is_served: bool = False
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] = field(init=False)

    async def ask(self, pool: Pool) -> None:
        async with pool.slot(self.request):
            self.is_served = True
            await self.may_end.wait()
        self.is_served = False


class World:
    """Clients before a pool, and what must hold of it at any time."""

    def __init__(self) -> None:
        self.pool = Pool("dep", bounds=BOUNDS)
        self.clients: list[Client] = []
        self.set_slots(3)

    def set_slots(self, slots: int) -> None:
        records = [replica("http://r1", 1, slots=slots), replica("http://r2", 2, slots=2)]
        self.pool.set_replicas({one.replica_id: one for one in records})

    async def do(self, deed: Any) -> None:
        if isinstance(deed, SlotRequest):
            client = Client(deed)
            client.task = asyncio.create_task(client.ask(self.pool))
            self.clients.append(client)
        elif deed[0] == "slots":
            self.set_slots(deed[1])
        elif self.clients:
            client = self.clients[deed[1] % len(self.clients)]
            client.may_end.set() if deed[0] == "end" else client.task.cancel()
        for _ in range(6):
            await asyncio.sleep(0)
        for client in [one for one in self.clients if one.task.done()]:
            error = None if client.task.cancelled() else client.task.exception()
            assert error is None or isinstance(error, PoolError)
            self.clients.remove(client)
        self.check()

    def check(self) -> None:
        served = [one for one in self.clients if one.is_served]
        waiting = [one for one in self.clients if not one.is_served]
        replicas = self.pool.replicas.values()
        assert sum(one.in_flight for one in replicas) == sum(
            one.request.sequences for one in served
        )
        assert len(self.pool.queue) == len(waiting)
        assert self.pool.load_shedder.tokens == sum(
            one.request.input_tokens for one in self.clients
        )
        for line in self.pool.queue.tier_queues.values():
            assert line.requests <= BOUNDS.requests
            assert line.tokens <= BOUNDS.tokens
            assert line.tokens == sum(member.tokens for member in line.busy())
            for member in line.busy():
                organizations = [member] if member.within is None else list(member.within.busy())
                assert sum(one.waiting for one in organizations) == member.waiting
                assert sum(one.running for one in organizations) == member.running
                for one in organizations:
                    assert len(one.waiters) <= BOUNDS.organization_requests
        head = self.pool.queue.first()
        if head is not None:
            assert self.pool._find_for(head.request, ()) is None, "there is room, and one waits"

    async def clear(self) -> None:
        self.set_slots(6)
        for place in range(100):
            await self.do(("end", place))
        assert not self.clients


@settings(max_examples=150, deadline=None)
@given(st.lists(DEEDS, max_size=60))
def test_slots_are_neither_lost_nor_taken_twice_and_bounds_hold(deeds: list[Any]) -> None:
    async def live() -> None:
        world = World()
        for deed in deeds:
            await world.do(deed)
        await world.clear()
        assert all(one.in_flight == 0 for one in world.pool.replicas.values())
        assert all(not list(line.busy()) for line in world.pool.queue.tier_queues.values())

    asyncio.run(live())
