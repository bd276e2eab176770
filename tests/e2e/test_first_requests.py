"""Organizations that nobody has leased money for yet are served at once, though many come
together. `--only cold-start` measures how soon."""

import asyncio

import pytest

from tests.fixtures.first_requests import first_requests, make_organizations
from tests.fixtures.second_gateway import SecondGateway
from tests.fixtures.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.full]

ORGANIZATIONS = 200
PER_SECOND = 200


async def test_every_first_request_is_served(
    simulated_stack: Stack, second_gateway: SecondGateway
) -> None:
    keys = await asyncio.to_thread(make_organizations, simulated_stack, ORGANIZATIONS)
    api_bases = [simulated_stack.api_base, second_gateway.api_base]
    answers = await first_requests(api_bases, simulated_stack.model, keys, per_second=PER_SECOND)
    assert {status for status, _ in answers} == {200}
