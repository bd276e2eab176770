"""Gateways that share one replica by the fleet's division, by a clock that leaps."""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any, TypeVar

from serving.contract.codec import decode, encode
from serving.contract.slot_shares import DemandReport, SlotSharesReply
from serving.contract.units import Tier
from serving.engine.events import TokenUsage
from serving.fleet.slot_shares import SlotAllocator
from serving.gateway.slot_shares import GrantedSlots, demand_of
from serving.pool.overload import POOL_TOKENS_MAX, LoadShedder
from serving.pool.pool import Pool
from serving.pool.slot_request import PoolOverloaded, SlotRequest
from serving.pool.tier_queue import BOUNDS, QueueLimits
from tests.fixtures.catalog import replica

Made = TypeVar("Made")

REPORT_SECONDS = 0.2
AGAIN_SECONDS = 0.4
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


class Cluster:
    """`served` and `refused` count requests by tier, the latter by cause too, `served_by` by
    organization; `slot_seconds` is what tiers were served."""

    def __init__(
        self,
        gateways: int,
        slots: int,
        bounds: QueueLimits = BOUNDS,
        tokens_max: int = POOL_TOKENS_MAX,
    ) -> None:
        self.served: Counter[Tier] = Counter()
        self.served_by: Counter[str] = Counter()
        self.slot_seconds: Counter[Tier] = Counter()
        self.in_flight_max = 0
        self._clock = asyncio.get_running_loop().time
        self._fleet = SlotAllocator(epoch=1)
        self._slots = slots
        self._shares = [GrantedSlots(lambda: gateways) for _ in range(gateways)]
        self.pools = [
            Pool(
                "dep",
                clock=self._clock,
                bounds=bounds,
                share_of=shares.of,
                may_exceed=shares.may_exceed,
            )
            for shares in self._shares
        ]
        for pool in self.pools:
            pool.pressure = LoadShedder(tokens_max)
            pool.set_replicas({"rep_1": replica("http://r1", 1, slots=slots)})

    @property
    def refused(self) -> Counter[tuple[Tier, str]]:
        total: Counter[tuple[Tier, str]] = Counter()
        for pool in self.pools:
            total.update(pool.queue.refusals)
        return total

    async def ask_for_ever(self, gateway: int, request: SlotRequest, seconds: float) -> None:
        """Send one request after the other, each of which holds its slots for so long."""
        while True:
            try:
                async with self.pools[gateway].slot(request) as slot:
                    in_flight = sum(one.replicas["rep_1"].in_flight for one in self.pools)
                    self.in_flight_max = max(self.in_flight_max, in_flight)
                    slot.token_received()
                    await asyncio.sleep(seconds)
                    slot.usage_known(TokenUsage(request.input_tokens, 0, 20))
                    self.served[request.tier] += 1
                    self.served_by[request.organization_id] += 1
                    self.slot_seconds[request.tier] += seconds * request.sequences
            except PoolOverloaded:
                await asyncio.sleep(AGAIN_SECONDS)

    async def _report_for_ever(self, gateway: int) -> None:
        pool, shares, number = self.pools[gateway], self._shares[gateway], 0
        await asyncio.sleep(REPORT_SECONDS * gateway / len(self.pools))
        while True:
            number += 1
            report = DemandReport(f"g{gateway}", number, {"dep": demand_of(pool)})
            slots = {"dep": {"rep_1": self._slots}}
            reply = decode(
                encode(self._fleet.report(report, slots, self._clock())), SlotSharesReply
            )
            shares.hear(reply)
            parts, tiers = reply.parts.get("dep", {}), reply.tiers.get("dep")
            pool.set_shares(parts, tiers, reply.guarantees)
            await asyncio.sleep(REPORT_SECONDS)

    async def run(self, seconds: float, *clients: tuple[int, SlotRequest, float]) -> None:
        """Let clients ask, each at a gateway with a ticket and how long its answers take."""
        asking: list[Coroutine[Any, Any, None]] = [self.ask_for_ever(*one) for one in clients]
        asking += [self._report_for_ever(number) for number in range(len(self.pools))]
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
