"""Requests of several choices: they begin at the first free slot, and what they take is counted."""

import asyncio
import heapq
from collections import Counter
from itertools import count
from typing import Any

import pytest

from serving.engine.usage import Tokens
from serving.pool.errors import Overloaded
from serving.pool.pool import Pool
from serving.pool.ticket import Ticket
from tests.fixtures.catalog import replica

SLOTS = 16
SECONDS = 20.0
VICTIM = Ticket("victim", input_tokens=20, output_tokens_max=25)
ATTACKER = Ticket("attacker", input_tokens=20, output_tokens_max=8, width=8)
STEP_SECONDS = 0.04


class Simulation:
    """Clients before one pool, by a clock of its own; `slot_seconds` is what each was served."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slot_seconds: Counter[str] = Counter()
        self.pool = Pool("dep", clock=lambda: self.now)
        self.pool.set_replicas({"rep_1": replica("http://r1", 1, slots=SLOTS)})
        self._ends: list[tuple[float, int, asyncio.Event]] = []
        self._numbers = count()

    async def ask_for_ever(self, ticket: Ticket, tokens: int, step: float = STEP_SECONDS) -> None:
        """Send one request after the other, each of so many tokens a choice."""
        while True:
            async with self.pool.slot(ticket) as slot:
                end, began = asyncio.Event(), self.now
                moment = self.now + tokens * step
                heapq.heappush(self._ends, (moment, next(self._numbers), end))
                slot.works()
                await end.wait()
                slot.took(Tokens(ticket.input_tokens, 0, tokens * ticket.width))
                self.slot_seconds[ticket.organization_id] += (self.now - began) * ticket.width

    async def run(self) -> None:
        while self.now < SECONDS:
            for _ in range(12):
                await asyncio.sleep(0)
            self.now, _, end = heapq.heappop(self._ends)
            end.set()


async def served(*clients: tuple[Any, ...]) -> Counter[str]:
    simulation = Simulation()
    tasks = [asyncio.create_task(simulation.ask_for_ever(*client)) for client in clients]
    await simulation.run()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return simulation.slot_seconds


async def test_brief_wide_requests_take_no_slots_from_others_while_they_wait() -> None:
    alone = await served(*[(VICTIM, 25)] * 32)
    beside = await served(*[(VICTIM, 25)] * 32, *[(ATTACKER, 1)] * 2)
    assert beside.total() >= 0.95 * alone["victim"], "no slot is left empty"
    assert beside["victim"] >= 0.8 * alone["victim"]


async def test_wide_requests_get_no_more_than_their_part() -> None:
    beside = await served(*[(VICTIM, 25)] * 64, *[(ATTACKER, 25)] * 8)
    assert 0.8 <= beside["attacker"] / beside["victim"] <= 1.25


async def test_what_holds_a_slot_and_makes_little_is_counted_by_its_time() -> None:
    slow = Ticket("slow", input_tokens=20, output_tokens_max=1)
    beside = await served(*[(VICTIM, 25)] * 32, *[(slow, 1, 1.0)] * 32)
    assert beside["slow"] <= 1.25 * beside["victim"]


async def hold(pool: Pool, ticket: Ticket, until: asyncio.Event, log: list[str]) -> None:
    async with pool.slot(ticket):
        log.append(ticket.organization_id)
        await until.wait()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("width", [2, 8])
async def test_a_request_of_several_choices_begins_at_the_first_free_slot(width: int) -> None:
    pool, log = Pool("dep"), list[str]()
    pool.set_replicas({"rep_1": replica("http://r1", 1, slots=4)})
    one, others, wide_end = asyncio.Event(), asyncio.Event(), asyncio.Event()
    ends = [one, others, others, others]
    tasks: list[Any] = [asyncio.create_task(hold(pool, Ticket("a"), end, log)) for end in ends]
    await settle()
    wide = Ticket("wide", width=width)
    tasks.append(asyncio.create_task(hold(pool, wide, wide_end, log)))
    await settle()
    tasks.append(asyncio.create_task(hold(pool, Ticket("narrow"), others, log)))
    await settle()
    one.set()
    await settle()
    assert log[4:] == ["wide"]
    assert pool.replicas["rep_1"].in_flight == 3 + width
    with pytest.raises(Overloaded):
        await hold(pool, Ticket("b", seconds_max=0.0), others, log)
    wide_end.set()
    await settle()
    assert log[5:] == ["narrow"]
    others.set()
    await asyncio.gather(*tasks)
    assert pool.replicas["rep_1"].in_flight == 0
