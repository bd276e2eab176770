"""Slots follow demand that moves from one gateway to another, within bounds of time."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import pytest

from serving.pool.pool import Pool
from serving.pool.slot_request import SlotRequest
from tests.serving.pool.cluster import Cluster, leaping

GATEWAYS, REPLICAS, SLOTS = 4, 2, 16
CLIENTS = 100
"""More than there are slots: somebody always waits."""
SAMPLE_SECONDS = 0.01
IDLE_SECONDS_MAX = 0.5
SECONDS = 8.0
"""For which slots are watched after demand moved."""
CONVERGED = 0.9
ANSWERS = [seconds / 10 for seconds in range(2, 21)]
"""How long they take."""
MOVES = {
    "from nobody to 90:10": ((), (90, 10)),
    "from nobody to 100:0": ((), (100,)),
    "from another to 90:10": ((0, 0, 0, 100), (90, 10)),
    "from another to 100:0": ((0, 0, 0, 100), (100,)),
    "from all to 90:10": ((25, 25, 25, 25), (90, 10)),
    "from all to 100:0": ((25, 25, 25, 25), (100,)),
    "from 90:10 to 10:90": ((90, 10), (10, 90)),
}


@dataclass
class Watch:
    """What was seen of a cluster: at each moment what each gateway runs, and whether slots were
    idle beside requests that wait."""

    moved_at: float = 0.0
    remaining_seconds: float = 0.0
    """The p95 of what ran when demand moved."""
    running: list[tuple[float, list[int]]] = field(default_factory=list)
    idle_seconds: float = 0.0
    """For how long one slot was idle beside requests that wait, at most."""

    def converged_after(self, gateway: int, slots: float) -> float:
        """Return after how long a gateway ran so many for good."""
        less = [at for at, running in self.running if running[gateway] < slots]
        return max([0.0, *(at - self.moved_at for at in less)])


class IdleSlots:
    """How long slots of one replica are idle beside requests that wait, but for the one that each
    of the `idle` gateways keeps. Of those that are idle, the first is thought to be taken first."""

    def __init__(self, cluster: Cluster, replica_id: str, idle: Sequence[int]) -> None:
        self._cluster = cluster
        self._id = replica_id
        self._idle = [cluster.pools[gateway] for gateway in idle]
        self._since: deque[float] = deque()
        self._begun = 0

    def look(self) -> float:
        """Return for how long the first that is idle now has been so."""
        cluster, now = self._cluster, self._cluster.clock()
        idle = SLOTS - sum(pool.replicas[self._id].in_flight for pool in cluster.pools)
        idle -= sum(kept_at(pool) == self._id for pool in self._idle)
        begun = cluster.begun[self._id] - self._begun
        self._begun += begun
        if not any(len(pool.queue) for pool in cluster.pools):
            self._since.clear()
            return 0.0
        for _ in range(min(len(self._since), begun)):
            self._since.popleft()
        while len(self._since) < idle:
            self._since.append(now)
        while len(self._since) > max(0, idle):
            self._since.popleft()
        return now - self._since[0] if self._since else 0.0


def kept_at(pool: Pool) -> str | None:
    """Return where an idle gateway keeps its slot."""
    return next((id_ for id_, one in pool.replicas.items() if one.free), None)


async def watched(before: Sequence[int], after: Sequence[int], organizations: int) -> Watch:
    """Let clients ask by gateway, move them, and return what was seen from then on."""
    cluster, watch, random = Cluster(GATEWAYS, SLOTS, replicas=REPLICAS), Watch(), Random(7)
    reports = [asyncio.ensure_future(cluster.report_for_ever(n)) for n in range(GATEWAYS)]

    def clients(counts: Sequence[int]) -> list[asyncio.Task[None]]:
        return [
            asyncio.ensure_future(
                cluster.ask_for_ever(
                    gateway,
                    SlotRequest(f"org_{gateway % organizations}", seconds_max=600.0),
                    random.choice(ANSWERS),
                )
            )
            for gateway, count in enumerate(counts)
            for _ in range(count * CLIENTS // 100)
        ]

    first = clients(before)
    await asyncio.sleep(10.0)
    watch.moved_at = cluster.clock()
    remaining = sorted(end - watch.moved_at for end in cluster.ends.values())
    watch.remaining_seconds = remaining[int(0.95 * len(remaining))] if remaining else 0.0
    cluster.leave(first)
    second = clients(after)
    nobodys = [gateway for gateway in range(GATEWAYS) if gateway >= len(after)]
    idle = [IdleSlots(cluster, replica_id, nobodys) for replica_id in cluster.slots]
    while cluster.clock() < watch.moved_at + SECONDS:
        await asyncio.sleep(SAMPLE_SECONDS)
        watch.running.append((cluster.clock(), [in_flight(pool) for pool in cluster.pools]))
        watch.idle_seconds = max(watch.idle_seconds, *(one.look() for one in idle))
    for task in (*first, *second, *reports):
        task.cancel()
    await asyncio.gather(*first, *second, *reports, return_exceptions=True)
    return watch


def in_flight(pool: Pool) -> int:
    return sum(replica.in_flight for replica in pool.replicas.values())


def fair_slots(after: Sequence[int], organizations: int) -> list[float]:
    """Return what gateways are due beside the slot that each idle one keeps: by their requests
    where one organization sends all, else to each organization what it needs, up to an equal part.
    """
    slots = REPLICAS * SLOTS - GATEWAYS + len([count for count in after if count])
    clients = [count * CLIENTS // 100 for count in after]
    if organizations == 1:
        return [slots * each / sum(clients) for each in clients]
    few = min(each for each in clients if each)
    part = slots / len([each for each in clients if each])
    return [min(each, max(part, slots - few)) for each in clients]


@pytest.mark.parametrize("organizations", [1, GATEWAYS])
@pytest.mark.parametrize("move", MOVES)
def test_slots_follow_demand_that_moves(move: str, organizations: int) -> None:
    before, after = MOVES[move]
    watch = leaping(watched(before, after, organizations))
    assert watch.idle_seconds <= IDLE_SECONDS_MAX
    bound = 1.0 + (watch.remaining_seconds if before else max(ANSWERS))
    for gateway, slots in enumerate(fair_slots(after, organizations)):
        assert watch.converged_after(gateway, CONVERGED * slots) <= bound
