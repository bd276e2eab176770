"""Engines load in turns, and none waits for ever for one that never ends."""

import asyncio

from serving.fleet.launcher import StartupLimiter


async def load(turns: StartupLimiter, name: str, said: list[str], seconds: float) -> None:
    async with turns.permit():
        said.append(f"{name} begins")
        await asyncio.sleep(seconds)
        said.append(f"{name} ends")


async def test_they_load_one_after_the_other_in_order() -> None:
    turns, said = StartupLimiter(1), list[str]()
    await asyncio.gather(*(load(turns, name, said, 0.01) for name in "abc"))
    assert said == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]


async def test_as_many_load_at_once_as_may() -> None:
    turns, said = StartupLimiter(2), list[str]()
    await asyncio.gather(*(load(turns, name, said, 0.01) for name in "abc"))
    assert said[:2] == ["a begins", "b begins"]
    assert said.index("c begins") > said.index("a ends")


async def test_one_that_never_ends_holds_nobody_up_for_ever() -> None:
    turns, said = StartupLimiter(1, wait_seconds_max=0.05), list[str]()
    endless = asyncio.create_task(load(turns, "a", said, 60))
    await asyncio.sleep(0)
    await load(turns, "b", said, 0)
    assert said == ["a begins", "b begins", "b ends"]
    endless.cancel()
    await asyncio.gather(endless, return_exceptions=True)
    await asyncio.wait_for(load(turns, "c", said, 0), 0.04)


async def test_who_gives_up_waiting_gives_the_turn_to_the_next() -> None:
    turns, said = StartupLimiter(1), list[str]()
    first = asyncio.create_task(load(turns, "a", said, 0.05))
    await asyncio.sleep(0)
    second = asyncio.create_task(load(turns, "b", said, 0))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    await asyncio.wait_for(load(turns, "c", said, 0), 60)
    assert said[-2:] == ["c begins", "c ends"]
