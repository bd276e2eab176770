"""Clients before one pool, by a clock of their own."""

import asyncio
import heapq
from collections import Counter
from itertools import count
from typing import Any

from serving.engine.events import TokenUsage
from serving.pool.pool import Pool
from serving.pool.slot_request import PoolOverloaded, SlotRequest
from tests.fixtures.catalog import replica

SECONDS = 20.0
STEP_SECONDS = 0.04
"""Of an engine: each sequence makes a token in it."""


class Simulation:
    """`slot_seconds` is what each organization was served, `refused` who was sent away."""

    def __init__(self, slots: int, kv_tokens: int | None = None) -> None:
        self.now = 0.0
        self.slot_seconds: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.pool = Pool("dep", clock=lambda: self.now)
        record = replica("http://r1", 1, slots=slots, kv_capacity_tokens=kv_tokens)
        self.pool.set_replicas({"rep_1": record})
        self._ends: list[tuple[float, int, asyncio.Event]] = []
        self._numbers = count()

    async def ask_for_ever(
        self, request: SlotRequest, tokens: int, step: float = STEP_SECONDS
    ) -> None:
        """Send one request after the other, each of so many tokens a choice."""
        while True:
            try:
                async with self.pool.slot(request) as slot:
                    began = self.now
                    slot.token_received()
                    await self._sleep(tokens * step)
                    slot.usage_known(
                        TokenUsage(request.input_tokens, 0, tokens * request.sequences)
                    )
                    self.slot_seconds[request.organization_id] += (
                        self.now - began
                    ) * request.sequences
            except PoolOverloaded:
                self.refused[request.organization_id] += 1
                await self._sleep(STEP_SECONDS)

    async def _sleep(self, seconds: float) -> None:
        end = asyncio.Event()
        heapq.heappush(self._ends, (self.now + seconds, next(self._numbers), end))
        await end.wait()

    async def run(self) -> None:
        while self.now < SECONDS:
            for _ in range(12):
                await asyncio.sleep(0)
            self.now, _, end = heapq.heappop(self._ends)
            end.set()


async def served(slots: int, *clients: tuple[Any, ...], kv_tokens: int | None = None) -> Simulation:
    """Let clients ask, each with a ticket and the tokens of its answers, and return what came. The
    replica's KV cache has room for so many tokens, if any bound is known."""
    simulation = Simulation(slots, kv_tokens)
    tasks = [asyncio.create_task(simulation.ask_for_ever(*client)) for client in clients]
    await simulation.run()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return simulation
