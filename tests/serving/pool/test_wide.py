"""Requests of several choices: they begin at the first free slot, and what they take is counted."""

import asyncio
from typing import Any

import pytest

from serving.pool.pool import Pool
from serving.pool.slot_request import PoolOverloaded, SlotRequest
from tests.fixtures.catalog import replica
from tests.serving.pool.simulation import served

SLOTS = 16
VICTIM = SlotRequest("victim", input_tokens=20, output_tokens_max=25)
ATTACKER = SlotRequest("attacker", input_tokens=20, output_tokens_max=8, sequences=8)


async def test_brief_wide_requests_take_no_slots_from_others_while_they_wait() -> None:
    alone = (await served(SLOTS, *[(VICTIM, 25)] * 32)).slot_seconds
    beside = (await served(SLOTS, *[(VICTIM, 25)] * 32, *[(ATTACKER, 1)] * 2)).slot_seconds
    assert beside.total() >= 0.95 * alone["victim"], "no slot is left empty"
    assert beside["victim"] >= 0.8 * alone["victim"]


async def test_wide_requests_get_no_more_than_their_part() -> None:
    beside = (await served(SLOTS, *[(VICTIM, 25)] * 64, *[(ATTACKER, 25)] * 8)).slot_seconds
    assert 0.8 <= beside["attacker"] / beside["victim"] <= 1.25


async def test_what_holds_a_slot_and_makes_little_is_counted_by_its_time() -> None:
    slow = SlotRequest("slow", input_tokens=20, output_tokens_max=1)
    beside = (await served(SLOTS, *[(VICTIM, 25)] * 32, *[(slow, 1, 1.0)] * 32)).slot_seconds
    assert beside["slow"] <= 1.25 * beside["victim"]


async def hold(pool: Pool, request: SlotRequest, until: asyncio.Event, log: list[str]) -> None:
    async with pool.slot(request):
        log.append(request.organization_id)
        await until.wait()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("sequences", [2, 8])
async def test_a_request_of_several_choices_begins_at_the_first_free_slot(sequences: int) -> None:
    pool, log = Pool("dep"), list[str]()
    pool.set_replicas({"rep_1": replica("http://r1", 1, slots=4)})
    one, others, wide_end = asyncio.Event(), asyncio.Event(), asyncio.Event()
    ends = [one, others, others, others]
    tasks: list[Any] = [asyncio.create_task(hold(pool, SlotRequest("a"), end, log)) for end in ends]
    await settle()
    wide = SlotRequest("wide", sequences=sequences)
    tasks.append(asyncio.create_task(hold(pool, wide, wide_end, log)))
    await settle()
    tasks.append(asyncio.create_task(hold(pool, SlotRequest("narrow"), others, log)))
    await settle()
    one.set()
    await settle()
    assert log[4:] == ["wide"]
    assert pool.replicas["rep_1"].in_flight == 3 + sequences
    with pytest.raises(PoolOverloaded):
        await hold(pool, SlotRequest("b", seconds_max=0.0), others, log)
    wide_end.set()
    await settle()
    assert log[5:] == ["narrow"]
    others.set()
    await asyncio.gather(*tasks)
    assert pool.replicas["rep_1"].in_flight == 0
