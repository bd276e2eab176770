"""Too many tokens: less urgent tiers are shed first, and no organization takes all the room."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract.units import TIERS, Tier
from serving.pool.errors import Overloaded
from serving.pool.pool import Pool
from serving.pool.pressure import PART, Pressure
from serving.pool.ticket import Ticket
from tests.fixtures.catalog import replica

TICKETS = st.builds(
    Ticket,
    organization_id=st.sampled_from("abcdef"),
    weight=st.integers(1, 3),
    tier=st.sampled_from(TIERS),
    input_tokens=st.integers(1, 300),
)


@given(st.lists(st.tuples(TICKETS, st.booleans()), max_size=80))
def test_a_tier_never_fills_what_is_left_for_those_above(
    deeds: list[tuple[Ticket, bool]],
) -> None:
    pressure, held = Pressure(1_000), list[Ticket]()
    for ticket, ends in deeds:
        if pressure.fits(ticket):
            pressure.add(ticket)
            held.append(ticket)
            assert pressure.tokens <= 1_000 * PART[ticket.tier]
        if ends and held:
            pressure.remove(held.pop(0))
        assert pressure.tokens == sum(one.input_tokens for one in held)


def test_more_urgent_tiers_find_room_where_others_find_none() -> None:
    pressure = Pressure(1_000)
    assert list(PART) == list(TIERS)
    for lower, upper in pairwise(reversed(TIERS)):
        number = 0
        while pressure.fits(one := Ticket(f"{lower}{number}", tier=lower, input_tokens=1)):
            pressure.add(one)
            number += 1
        assert not pressure.fits(Ticket("newcomer", tier=lower))
        assert pressure.fits(Ticket("newcomer", tier=upper))


def test_an_organization_may_take_as_much_as_it_leaves_by_its_weight() -> None:
    light, heavy = Pressure(1_000), Pressure(1_000)
    assert light.fits(Ticket("a", tier="priority", input_tokens=500))
    assert not light.fits(Ticket("a", tier="priority", input_tokens=501))
    assert heavy.fits(Ticket("a", weight=3, tier="priority", input_tokens=750))


def test_all_pools_together_have_a_bound_of_their_own() -> None:
    everything = Pressure(1_000)
    one, other = Pressure(1_000, within=everything), Pressure(1_000, within=everything)
    one.add(Ticket("a", input_tokens=800))
    assert other.tokens == 0
    assert not other.fits(Ticket("b", input_tokens=200))
    one.remove(Ticket("a", input_tokens=800))
    assert other.fits(Ticket("b", input_tokens=200))


async def test_who_is_shed_is_told_so_and_when_to_come_again() -> None:
    pool = Pool("dep")
    pool.set_replicas({"rep_1": replica("http://r1", 1, slots=1)})
    pool.pressure = Pressure(1_000)
    now = [0.0]
    pool.queue._clock = lambda: now[0]

    async def hold(tier: Tier, tokens: int) -> None:
        async with pool.slot(Ticket(tier, tier=tier, input_tokens=tokens)):
            await asyncio.Event().wait()

    tasks = [asyncio.create_task(hold("default", 400))]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded) as caught:
        await hold("batch", 101)
    assert (caught.value.cause, pool.queue.refusals["batch", "pressed"]) == ("pressed", 1)
    tasks.append(asyncio.create_task(hold("priority", 101)))
    await asyncio.sleep(0)
    assert (len(pool.queue), pool.pressure.tokens) == (1, 501)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert pool.pressure.tokens == 0
