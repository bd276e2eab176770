"""A thousand organizations that nobody has leased money for yet are served at once."""

import asyncio
import json
import time

import aiohttp
import pytest

from tests.fixtures.second_gateway import SecondGateway
from tests.fixtures.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.full]

ORGANIZATIONS = 1_000
A_SECOND = 200
"""How many first requests come in a second, at each of the two gateways half of them."""
WITHIN_SECONDS = 2.0
MAKE = f"""\
import json
from django.utils import timezone
from billing.credit.models import GrantKind
from billing.credit.services.grants import grant_credit
from control.actor import system
from control.keys.services import mint_key
from control.tenants.models import User
from control.tenants.selectors import default_project
from control.tenants.services import create_organization
owner = User.objects.create_user("thousand@house.example", "correct horse battery staple")
secrets = []
for number in range({ORGANIZATIONS}):
    one = create_organization(actor=system("tests"), name=f"cold {{number}}", owner=owner)
    grant_credit(
        organization_id=one.id, kind=GrantKind.PREPAID, amount_nanos=10**9, reason="tests",
        idempotency_key="cold", actor=system("tests"), now=timezone.now(),
    )
    secrets.append(mint_key(actor=system("tests"), project=default_project(one), name="cold")[1])
print(json.dumps(secrets))
"""


async def first_request(
    session: aiohttp.ClientSession, door: str, model: str, api_key: str
) -> tuple[int, float]:
    """Return how the first request of an organization was answered, and after how long."""
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    began = time.monotonic()
    async with session.post(
        f"{door}/chat/completions", json=body, headers={"authorization": f"Bearer {api_key}"}
    ) as reply:
        await reply.read()
        return reply.status, time.monotonic() - began


async def knows(session: aiohttp.ClientSession, door: str, api_key: str) -> bool:
    headers = {"authorization": f"Bearer {api_key}"}
    async with session.get(f"{door}/models", headers=headers) as reply:
        return reply.status == 200


async def test_every_first_request_is_served_within_two_seconds(
    simulated_stack: Stack, second_gateway: SecondGateway
) -> None:
    made = await asyncio.to_thread(
        simulated_stack.penstock, "manage", "shell", "--no-imports", "--command", MAKE
    )
    assert made.returncode == 0, made.stderr
    keys = json.loads(made.stdout.strip().splitlines()[-1])
    doors = [simulated_stack.api_base, second_gateway.api_base]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        deadline = time.monotonic() + 10
        while not all([await knows(session, door, keys[-1]) for door in doors]):
            assert time.monotonic() < deadline, "the last key never arrived"
            await asyncio.sleep(0.05)

        async def arrive(place: int) -> tuple[int, float]:
            await asyncio.sleep(place / A_SECOND)
            return await first_request(
                session, doors[place % 2], simulated_stack.model, keys[place]
            )

        answers = await asyncio.gather(*(arrive(place) for place in range(ORGANIZATIONS)))
    assert {status for status, _ in answers} == {200}
    assert max(seconds for _, seconds in answers) <= WITHIN_SECONDS
