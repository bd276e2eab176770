"""A revoked key is refused by every gateway. `--only revocation` measures how soon."""

import aiohttp
import pytest

from tests.fixtures.revocation import revocation_delays
from tests.fixtures.second_gateway import SecondGateway
from tests.fixtures.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.full]

WORST_SECONDS = 60.0


async def test_a_revoked_key_is_refused_by_two_gateways(
    simulated_stack: Stack, second_gateway: SecondGateway
) -> None:
    gateways = [simulated_stack.api_base, second_gateway.api_base]
    async with aiohttp.ClientSession() as session, simulated_stack.management(session) as keys:
        delays = await revocation_delays(keys, gateways, keys=20, seconds_max=WORST_SECONDS)
    assert len(delays) == 20
