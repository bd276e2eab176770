"""A revoked key is refused by every gateway within a second."""

import asyncio
import statistics
import time

import aiohttp
import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.full]

KEYS = 200
WITHIN_SECONDS = 1.0
AT_ONCE = 10
ASK_EVERY_SECONDS = 0.05
"""So seldom that asking about all of them is no load of its own on two cores."""


async def status(session: aiohttp.ClientSession, api_base: str, api_key: str) -> int:
    headers = {"authorization": f"Bearer {api_key}"}
    async with session.get(f"{api_base}/models", headers=headers) as reply:
        return reply.status


async def until_status(
    session: aiohttp.ClientSession, api_base: str, api_key: str, wanted: int
) -> float:
    """Ask until the gateway answers `wanted`; return how long that took, in seconds."""
    began = time.monotonic()
    while await status(session, api_base, api_key) != wanted:
        assert time.monotonic() - began < 10, f"{api_base} never answered {wanted}"
        await asyncio.sleep(ASK_EVERY_SECONDS)
    return time.monotonic() - began


async def lifetime(session: aiohttp.ClientSession, management, doors: list[str]) -> float:
    """Mint a key, see it work at every door, revoke it; return the delay until all refused."""
    key_id, secret = await management.mint()
    await asyncio.gather(*(until_status(session, door, secret, 200) for door in doors))
    revoked_at = time.monotonic()
    await management.revoke(key_id)
    await asyncio.gather(*(until_status(session, door, secret, 401) for door in doors))
    return time.monotonic() - revoked_at


async def test_a_revoked_key_is_refused_within_a_second_on_two_gateways(
    simulated_stack, second_gateway
) -> None:
    doors = [simulated_stack.api_base, second_gateway.api_base]
    gate = asyncio.Semaphore(AT_ONCE)
    async with aiohttp.ClientSession() as session, simulated_stack.management(session) as keys:

        async def one() -> float:
            async with gate:
                return await lifetime(session, keys, doors)

        delays = await asyncio.gather(*(one() for _ in range(KEYS)))
    assert len(delays) == KEYS
    assert statistics.quantiles(delays, n=100)[98] <= WITHIN_SECONDS, sorted(delays)[-5:]
