"""All organizations that never paid have the share of one, and take turns within it."""

from collections import Counter

import pytest

from serving.contract.tiers import DEFAULT_GUARANTEES
from serving.pool.overload import LoadShedder
from serving.pool.queue import Waiter
from serving.pool.slot_request import SlotRequest
from serving.pool.tier_queue import QueueLimits, TierQueue
from tests.serving.pool.cluster import Cluster, leaping
from tests.serving.pool.simulation import SECONDS, served
from tests.serving.pool.test_fairness import NO_BOUNDS, future

SLOTS = 8
FLOOD = [
    SlotRequest(f"flood_{number}", output_tokens_max=10, is_paying=False) for number in range(50)
]
NEIGHBOUR = SlotRequest("neighbour", output_tokens_max=10)
QUIET = SlotRequest("quiet", output_tokens_max=10, is_paying=False)


def waiter(organization: str, *, is_paying: bool = True) -> Waiter:
    return Waiter(SlotRequest(organization, input_tokens=100, is_paying=is_paying), (), future())


@pytest.mark.parametrize("neighbours", [1, 2])
async def test_fifty_that_never_paid_leave_each_neighbour_the_share_that_it_has_beside_one(
    neighbours: int,
) -> None:
    names = [f"neighbour_{number}" for number in range(neighbours)]
    paying = [SlotRequest(name, output_tokens_max=10) for name in names]
    flood = [(one, 10) for one in FLOOD for _ in range(4)]
    clients = [(one, 10) for one in paying for _ in range(2 * SLOTS)]
    simulation = await served(SLOTS, *flood, *clients)
    fair = SLOTS * SECONDS / (neighbours + 1)
    for name in names:
        assert simulation.slot_seconds[name] >= 0.9 * fair
        assert not simulation.refused[name]


async def test_of_two_that_never_paid_one_that_floods_does_not_starve_the_other() -> None:
    simulation = await served(
        SLOTS,
        *[(FLOOD[0], 10)] * 300,
        *[(QUIET, 5)] * SLOTS,
        *[(NEIGHBOUR, 10)] * (2 * SLOTS),
    )
    assert simulation.slot_seconds["neighbour"] >= 0.9 * SLOTS * SECONDS / 2
    assert simulation.slot_seconds["quiet"] >= 0.8 * SLOTS * SECONDS / 4
    assert not simulation.refused["quiet"]


def test_a_new_organization_for_each_request_is_given_every_second_turn() -> None:
    line, turns = TierQueue[Waiter](NO_BOUNDS), Counter[bool]()
    for _ in range(300):
        line.join(waiter("steady"))
    for number in range(400):
        line.join(waiter(f"new_{number}", is_paying=False))
        head = line.first()
        assert head is not None
        line.end(line.serve(head))
        turns[head.request.is_paying] += 1
    assert turns[True] >= 199


def test_one_of_them_whose_turn_others_were_given_holds_up_none_of_the_others() -> None:
    line = TierQueue[Waiter](NO_BOUNDS)
    for name in ("first", "second"):
        line.join(waiter(name, is_paying=False))
    line.join(waiter("paying"))
    for passed in ((), ("first",), ("first", "second"), ("first", "second", "paying")):
        head = line.first(passed)
        found = None if head is None else head.request.organization_id
        assert found == {0: "first", 1: "second", 2: "paying", 3: None}[len(passed)]


def test_where_the_queue_is_full_they_give_up_places_as_one_and_each_as_one_of_them() -> None:
    line = TierQueue[Waiter](QueueLimits(requests=100))
    for number in range(40):
        line.join(waiter(f"new_{number}", is_paying=False))
    for _ in range(60):
        line.join(waiter("flood", is_paying=False))
    quiet = waiter("quiet", is_paying=False)
    evicted = line.eviction_candidate(quiet.request)
    assert evicted is not None
    assert evicted.request.organization_id == "flood"
    assert line.eviction_candidate(waiter("flood", is_paying=False).request) is None
    given_up = Counter[str]()
    while (evicted := line.eviction_candidate(NEIGHBOUR)) is not None:
        line.remove(evicted)
        line.join(waiter("neighbour"))
        given_up[evicted.request.organization_id] += 1
    assert 49 <= given_up["flood"] <= 50
    assert given_up.total() == given_up["flood"]


def fits(shedder: LoadShedder, request: SlotRequest) -> bool:
    return shedder.fits(request, DEFAULT_GUARANTEES[request.tier])


def test_they_hold_together_what_one_may_and_leave_room_for_one_of_them_who_comes_later() -> None:
    def request(organization: str, *, is_paying: bool = False) -> SlotRequest:
        return SlotRequest(organization, tier="priority", input_tokens=1, is_paying=is_paying)

    def fill(shedder: LoadShedder, *requests: SlotRequest) -> int:
        before = shedder.tokens
        while fitting := [one for one in requests if fits(shedder, one)]:
            shedder.add(fitting[shedder.tokens % len(fitting)])
        return shedder.tokens - before

    everybody = LoadShedder(1_000)
    assert fill(everybody, *(request(f"new_{number}") for number in range(50))) <= 500
    assert fill(everybody, request("neighbour", is_paying=True)) >= 250
    one = LoadShedder(1_000)
    assert fill(one, request("flood")) == 333
    assert fill(one, request("quiet")) >= 100
    one = LoadShedder(1_000, within=everybody)
    one.add(request("new_1"))
    one.remove(request("new_1"))
    assert not one.tokens


async def through_two_gateways() -> Cluster:
    cluster = Cluster(2, slots=SLOTS)
    flood = [(0, FLOOD[0], 1.0)] * 64
    quiet = [(1, QUIET, 1.0)] * SLOTS
    neighbour = [(1, NEIGHBOUR, 1.0)] * (2 * SLOTS)
    await cluster.run(200.0, *flood, *quiet, *neighbour)
    return cluster


def test_through_two_gateways_a_flood_leaves_others_their_shares_too() -> None:
    cluster = leaping(through_two_gateways())
    everything = SLOTS * 200.0
    assert cluster.served_by["neighbour"] >= 0.85 * everything / 2
    assert cluster.served_by["quiet"] >= 0.8 * everything / 4


async def test_nothing_is_kept_of_who_has_nothing_here() -> None:
    line = TierQueue[Waiter](NO_BOUNDS)
    one = waiter("new", is_paying=False)
    line.join(one)
    [shared] = line.busy()
    assert shared.within is not None
    service = line.serve(one)
    line.charge_running(10.0)
    line.settle(service, None, 500.0)
    assert service.within is not None
    assert service.within.charged == service.charged >= 500.0
    line.end(service)
    assert not list(line.busy())
    assert not list(shared.within.busy())
    assert not shared.within._services
