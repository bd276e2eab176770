"""A stream with an idempotency key completes once, whichever process is killed."""

import asyncio

import pytest

from tests.fixtures.replaying import GATEWAYS, Victims, must_be_once, replay, turn_on
from tests.fixtures.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.full]

KILLS_MIN = 4
CONTROL_TOO: Victims = {**GATEWAYS, "control": (3.0, 6.0)}


@pytest.mark.parametrize("keys", [30, pytest.param(100, marks=pytest.mark.long)])
@pytest.mark.parametrize("victims", [GATEWAYS, CONTROL_TOO], ids=["gateways", "control too"])
def test_a_key_is_told_one_answer_and_charged_once(
    two_gateways: Stack, victims: Victims, keys: int
) -> None:
    seed = keys + len(victims)
    tenant = two_gateways.new_tenant(f"keys-{seed}@acme.example")
    asyncio.run(turn_on(two_gateways, tenant))
    asked = {"keys": keys, "times": 3, "clients": 8, "kills_min": KILLS_MIN}
    replays = asyncio.run(replay(two_gateways, tenant, victims=victims, seed=seed, **asked))
    must_be_once(two_gateways, replays, seed=seed)
    assert replays.kills >= KILLS_MIN
    assert sum(life.again for life in replays.lives) > len(replays.lives)
    check = two_gateways.penstock("billing", "check-integrity")
    assert check.returncode == 0, check.stdout
