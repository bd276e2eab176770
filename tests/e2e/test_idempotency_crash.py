"""A stream with an idempotency key completes once, whichever process is killed."""

import asyncio

import pytest

from tests.fixtures.replaying import GATEWAYS, Victims, must_be_once, replay, turn_on
from tests.fixtures.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.full]

KEYS = 100
SEED = 1
CONTROL_TOO: Victims = {**GATEWAYS, "control": (3.0, 6.0)}


@pytest.mark.parametrize("victims", [GATEWAYS, CONTROL_TOO], ids=["gateways", "control too"])
def test_a_key_is_told_one_answer_and_charged_once(two_gateways: Stack, victims: Victims) -> None:
    seed = SEED + len(victims)
    tenant = two_gateways.new_tenant(f"keys-{seed}@acme.example")
    asyncio.run(turn_on(two_gateways, tenant))
    replays = asyncio.run(
        replay(two_gateways, tenant, keys=KEYS, times=3, clients=8, victims=victims, seed=seed)
    )
    must_be_once(two_gateways, replays, seed=seed)
    assert replays.kills >= 3
    assert sum(life.again for life in replays.lives) > KEYS
    check = two_gateways.penstock("check-integrity")
    assert check.returncode == 0, check.stdout
