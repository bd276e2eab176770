"""Turns go round among organizations, however much one of them sends."""

import asyncio

import pytest

from serving.offload.pool import OffloadBusy, TenantSemaphore


def turns(places: int = 1, *, wait_seconds_max: float = 60.0) -> TenantSemaphore:
    return TenantSemaphore(
        places, waiting_max=6, waiting_of_one_max=4, wait_seconds_max=wait_seconds_max
    )


async def take(
    of: TenantSemaphore, organization_id: str, order: list[str], *, is_paying: bool = True
) -> None:
    async with of.permit(organization_id, is_paying=is_paying):
        order.append(organization_id)
        await asyncio.sleep(0.01)


async def test_a_flood_of_one_waits_behind_its_own() -> None:
    of, order = turns(), list[str]()
    await asyncio.gather(*(take(of, name, order) for name in ("a", "a", "a", "a", "b", "c")))
    assert order[:3] == ["a", "b", "c"]
    assert order[3:] == ["a", "a", "a"]


async def test_one_never_has_two_places() -> None:
    of = turns(places=2)
    async with of.permit("a"):
        waiting = asyncio.create_task(take(of, "a", []))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await take(of, "b", [])
    await waiting


async def test_too_many_of_one_and_of_all_are_busy() -> None:
    of, order = turns(), list[str]()
    waiting = [asyncio.create_task(take(of, "a", order)) for _ in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(OffloadBusy):
        await take(of, "a", order)
    waiting += [asyncio.create_task(take(of, name, order)) for name in "bc"]
    await asyncio.sleep(0)
    with pytest.raises(OffloadBusy):
        await take(of, "b", order)
    waiting += [asyncio.create_task(take(of, name, order)) for name in "defghi"]
    await asyncio.sleep(0)
    with pytest.raises(OffloadBusy):
        await take(of, "j", order)
    await asyncio.gather(*waiting)
    await take(of, "d", order)


async def test_a_wait_ends_and_leaves_nothing_behind() -> None:
    of = turns(wait_seconds_max=0.05)
    async with of.permit("a"):
        for name in ("a", "b", "a"):
            with pytest.raises(OffloadBusy):
                await take(of, name, [])
    of._wait_seconds_max = 60.0
    order: list[str] = []
    await asyncio.gather(*(take(of, name, order) for name in "ab"))
    assert order == ["a", "b"]


async def test_who_leaves_the_line_gives_up_their_place() -> None:
    of, order = turns(), list[str]()
    async with of.permit("a"):
        leaving = asyncio.create_task(take(of, "b", order))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
    await take(of, "b", order)
    assert order == ["b"]


async def test_who_had_least_of_late_goes_first() -> None:
    now = [0.0]
    of, order = (
        TenantSemaphore(1, waiting_max=6, waiting_of_one_max=4, wait_seconds_max=60.0),
        list[str](),
    )
    of.clock = lambda: now[0]
    for name, seconds in (("a", 2.0), ("b", 5.0), ("c", 1.0)):
        async with of.permit(name):
            now[0] += seconds
    async with of.permit("z"):
        waiting = [asyncio.create_task(take(of, name, order)) for name in "abcd"]
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    assert order == ["d", "c", "a", "b"]


async def order_of(jobs: list[tuple[str, bool]], **bounds: int) -> list[str]:
    """Return in which order jobs of organizations, some of which never paid, have the only place,
    each for a second."""
    of = TenantSemaphore(
        1, **{"waiting_max": 500, "waiting_of_one_max": 100} | bounds, wait_seconds_max=60.0
    )
    now, order = [0.0], list[str]()
    of.clock = lambda: now[0]

    async def work(name: str, *, is_paying: bool) -> None:
        async with of.permit(name, is_paying=is_paying):
            order.append(name)
            now[0] += 1.0

    async with of.permit("before"):
        waiting = [asyncio.create_task(work(name, is_paying=paid)) for name, paid in jobs]
        await asyncio.sleep(0)
    await asyncio.gather(*waiting, return_exceptions=True)
    return order


async def test_fifty_that_never_paid_have_the_turns_of_one() -> None:
    flood = [(f"new_{number}", False) for number in range(50)]
    order = await order_of([*flood, *[("neighbour", True)] * 5])
    assert [name == "neighbour" for name in order[:10]].count(True) == 5
    assert len(order) == 55


async def test_of_those_that_never_paid_one_that_floods_keeps_out_no_other() -> None:
    order = await order_of([*[("flood", False)] * 200, ("quiet", False)])
    assert order.index("quiet") <= 1
    assert order.count("flood") == 50


async def test_all_that_never_paid_wait_with_as_many_jobs_as_one_may() -> None:
    jobs = [(f"new_{number}", False) for number in range(10) for _ in range(30)]
    order = await order_of(jobs)
    # The first job of each comes in whatever its others fill.
    assert len(order) <= 100 + 10
