"""Gateways that share one replica by the fleet's division, by a clock that leaps."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from serving.contract.codec import decode, encode
from serving.contract.slot_shares import DemandReport, SlotSharesReply
from serving.contract.units import Tier
from serving.engine.events import TokenUsage
from serving.fleet.slot_shares import SlotAllocator
from serving.gateway.slot_shares import DemandReporter, GrantedSlots
from serving.pool.overload import POOL_TOKENS_MAX, LoadShedder
from serving.pool.pool import Pool
from serving.pool.slot_request import PoolOverloaded, SlotRequest
from serving.pool.tier_queue import BOUNDS, QueueLimits
from tests.fixtures.catalog import replica

Made = TypeVar("Made")

REPORT_SECONDS = 0.2
"""As gateways do by default."""
AGAIN_SECONDS = 0.4
TOKENS_A_SECOND = 40
"""Of an answer."""
WIDTH_MAX = 8
"""Slots of a request: of as many choices as a client may ask for."""


class LeapingLoop(asyncio.SelectorEventLoop):
    """Its clock leaps to the next timer where nothing else is to do."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


class Reporter(DemandReporter):
    """Asks the fleet of a cluster, without HTTP."""

    def __init__(self, cluster: "Cluster", gateway: int) -> None:
        super().__init__(
            *(Any, "http://fleet", ""),
            gateway_id=f"g{gateway}",
            shares=cluster.shares[gateway],
            pools=lambda: {"dep": cluster.pools[gateway]},
            report_seconds=REPORT_SECONDS,
        )
        self._cluster = cluster

    async def _post(self, report: DemandReport, seconds: float) -> SlotSharesReply:
        return self._cluster.divide(report)


class Cluster:
    """`begun` counts requests by replica; `served` and `refused` do by tier, the latter by cause
    too, `served_by` by organization. `slot_seconds` is what tiers were served. `ends` are by client
    those of what runs; clients that are `leaving` ask no more."""

    def __init__(
        self,
        gateways: int,
        slots: int,
        bounds: QueueLimits = BOUNDS,
        tokens_max: int = POOL_TOKENS_MAX,
        *,
        replicas: int = 1,
        kv_capacity_tokens: int | None = None,
    ) -> None:
        self.served: Counter[Tier] = Counter()
        self.served_by: Counter[str] = Counter()
        self.slot_seconds: Counter[Tier] = Counter()
        self.in_flight_max = 0
        self.begun: Counter[str] = Counter()
        self.ends: dict[asyncio.Task[Any], float] = {}
        self.leaving: set[asyncio.Task[Any]] = set()
        self.clock = asyncio.get_running_loop().time
        self._fleet = SlotAllocator(epoch=1)
        records = [
            replica(f"http://r{n}", n, slots=slots, kv_capacity_tokens=kv_capacity_tokens)
            for n in range(1, replicas + 1)
        ]
        self.slots = {record.replica_id: record.slots for record in records}
        self.shares = [GrantedSlots(lambda: gateways) for _ in range(gateways)]
        self.reporters = [Reporter(self, gateway) for gateway in range(gateways)]
        self.pools = [
            Pool(
                "dep",
                clock=self.clock,
                bounds=bounds,
                share_of=shares.of,
                may_exceed=shares.may_exceed,
                on_demand=reporter.wake,
            )
            for shares, reporter in zip(self.shares, self.reporters, strict=True)
        ]
        for pool in self.pools:
            pool.load_shedder = LoadShedder(tokens_max)
            pool.set_replicas({record.replica_id: record for record in records})

    @property
    def in_flight(self) -> int:
        """Return how many slots of the fullest replica all gateways take together."""
        return max(sum(pool.replicas[id_].in_flight for pool in self.pools) for id_ in self.slots)

    @property
    def refused(self) -> Counter[tuple[Tier, str]]:
        total: Counter[tuple[Tier, str]] = Counter()
        for pool in self.pools:
            total.update(pool.queue.refusals)
        return total

    async def ask_for_ever(self, gateway: int, request: SlotRequest, seconds: float) -> None:
        """Send one request after the other, each of which holds its slots for so long."""
        task = asyncio.current_task()
        assert task is not None
        while task not in self.leaving:
            try:
                async with self.pools[gateway].slot(request) as slot:
                    self.begun[slot.replica.record.replica_id] += 1
                    self.in_flight_max = max(self.in_flight_max, self.in_flight)
                    slot.token_received()
                    self.ends[task] = self.clock() + seconds
                    try:
                        await asyncio.sleep(seconds)
                    finally:
                        del self.ends[task]
                    made = round(seconds * TOKENS_A_SECOND)
                    slot.usage_known(TokenUsage(request.input_tokens, 0, made))
                    self.served[request.tier] += 1
                    self.served_by[request.organization_id] += 1
                    self.slot_seconds[request.tier] += seconds * request.sequences
            except PoolOverloaded:
                await asyncio.sleep(AGAIN_SECONDS)

    def divide(self, report: DemandReport) -> SlotSharesReply:
        """Return what the fleet says to a report."""
        reply = self._fleet.report(report, {"dep": self.slots}, self.clock())
        return decode(encode(reply), SlotSharesReply)

    def leave(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        """Have clients ask no more: those that wait give up, and those that are served go on."""
        for task in tasks:
            self.leaving.add(task)
            if task not in self.ends:
                task.cancel()

    async def report_for_ever(self, gateway: int) -> None:
        """Have one gateway tell the fleet what it has to do, at moments of its own."""
        await asyncio.sleep(0.2 * gateway / len(self.pools))
        await self.reporters[gateway].run()

    async def run(self, seconds: float, *clients: tuple[int, SlotRequest, float]) -> None:
        """Let clients ask, each at a gateway with a ticket and how long its answers take."""
        asking: list[Coroutine[Any, Any, None]] = [self.ask_for_ever(*one) for one in clients]
        asking += [self.report_for_ever(number) for number in range(len(self.pools))]
        tasks = [asyncio.ensure_future(one) for one in asking]
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()


def leaping(main: Coroutine[Any, Any, Made]) -> Made:
    """Run a coroutine by a clock that leaps, and return what it made."""
    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        return runner.run(main)
