"""Too many tokens: no tier takes the room of another, and no organization that of its tier."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract.tiers import DEFAULT_GUARANTEES
from serving.contract.units import TIERS, Tier
from serving.pool.overload import LoadShedder
from serving.pool.pool import Pool
from serving.pool.slot_request import PoolOverloaded, SlotRequest
from tests.fixtures.catalog import replica

TICKETS = st.builds(
    SlotRequest,
    organization_id=st.sampled_from("abcdef"),
    weight=st.integers(1, 3),
    tier=st.sampled_from(TIERS),
    input_tokens=st.integers(1, 300),
)


def fits(pressure: LoadShedder, request: SlotRequest) -> bool:
    return pressure.fits(request, DEFAULT_GUARANTEES[request.tier])


@given(st.lists(st.tuples(TICKETS, st.booleans()), max_size=80))
def test_a_tier_below_its_guarantee_has_room_whatever_others_hold(
    deeds: list[tuple[SlotRequest, bool]],
) -> None:
    pressure, held = LoadShedder(1_000), list[SlotRequest]()
    for request, ends in deeds:
        if fits(pressure, request):
            pressure.add(request)
            held.append(request)
        if ends and held:
            pressure.remove(held.pop(0))
        assert pressure.tokens == sum(one.input_tokens for one in held) < 2_000
        for tier, share in DEFAULT_GUARANTEES.items():
            left = 1_000 * share - sum(one.input_tokens for one in held if one.tier == tier)
            newcomer = SlotRequest("newcomer", tier=tier, input_tokens=max(1, int(left / 2)))
            assert left < 2 or fits(pressure, newcomer)


@pytest.mark.parametrize("flooding", TIERS)
def test_what_is_free_is_there_for_every_tier_and_for_batch_all_but_a_reserve(
    flooding: Tier,
) -> None:
    pressure = LoadShedder(1_000)
    for number in range(1_000):
        if fits(pressure, one := SlotRequest(f"{flooding}{number}", tier=flooding, input_tokens=1)):
            pressure.add(one)
    assert pressure.tokens == (799 if flooding == "batch" else 999)
    assert not fits(pressure, SlotRequest("newcomer", tier=flooding))


def test_an_organization_may_take_as_much_as_it_leaves_by_its_weight() -> None:
    light, heavy = LoadShedder(1_000), LoadShedder(1_000)
    assert fits(light, SlotRequest("a", tier="priority", input_tokens=500))
    assert not fits(light, SlotRequest("a", tier="priority", input_tokens=501))
    assert fits(heavy, SlotRequest("a", weight=3, tier="priority", input_tokens=750))


def test_all_pools_together_have_a_bound_of_their_own() -> None:
    everything = LoadShedder(1_000)
    one, other = LoadShedder(1_000, within=everything), LoadShedder(1_000, within=everything)
    one.add(SlotRequest("a", input_tokens=800))
    assert other.tokens == 0
    assert not fits(other, SlotRequest("b", input_tokens=200))
    one.remove(SlotRequest("a", input_tokens=800))
    assert fits(other, SlotRequest("b", input_tokens=200))


async def test_who_is_shed_is_told_so_and_when_to_come_again() -> None:
    pool = Pool("dep")
    pool.set_replicas({"rep_1": replica("http://r1", 1, slots=1)})
    pool.load_shedder = LoadShedder(1_000)
    now = [0.0]
    pool.queue._clock = lambda: now[0]

    async def hold(tier: Tier, tokens: int) -> None:
        async with pool.slot(SlotRequest(tier, tier=tier, input_tokens=tokens)):
            await asyncio.Event().wait()

    tasks = [asyncio.create_task(hold("default", 400))]
    await asyncio.sleep(0)
    with pytest.raises(PoolOverloaded) as caught:
        await hold("batch", 201)
    assert (caught.value.reason, pool.queue.refusals["batch", "pressed"]) == ("pressed", 1)
    tasks.append(asyncio.create_task(hold("priority", 101)))
    await asyncio.sleep(0)
    assert (len(pool.queue), pool.load_shedder.tokens) == (1, 501)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert pool.load_shedder.tokens == 0
