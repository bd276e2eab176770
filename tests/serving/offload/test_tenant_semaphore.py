"""Turns go round among organizations, however much one of them sends."""

import asyncio

import pytest

from serving.offload.pool import OffloadBusy, TenantSemaphore


def turns(places: int = 1, *, wait_seconds_max: float = 60.0) -> TenantSemaphore:
    return TenantSemaphore(
        places, waiting_max=6, waiting_of_one_max=4, wait_seconds_max=wait_seconds_max
    )


async def take(of: TenantSemaphore, organization_id: str, order: list[str]) -> None:
    async with of.permit(organization_id):
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
