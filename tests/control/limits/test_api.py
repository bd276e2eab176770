"""Rate limits through the management API, and how much of them is used, from a real Redis."""

import asyncio
import dataclasses
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from control.api_keys.models import ApiKey
from control.limits import live_usage, rate_limits
from control.limits.usage_tiers import update_usage_tiers
from serving.contract.limits import shared_time
from serving.contract.records import OrganizationRecord, RateLimitSettings
from serving.contract.units import TIERS
from serving.limits.limiter import RateLimiter, RequestSize
from serving.limits.plans import make_plan
from serving.limits.redis_script import RedisCounterStore
from tests.fixtures import catalog
from tests.fixtures.organizations import OPERATOR, SeededOrganization, make_model
from tests.fixtures.redis_server import RedisServer, running_redis
from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
FIGURES = {"requests_per_minute": 2, "concurrent_requests": 2}
"""So few a minute that none is given back within a quarter of one."""
ALL = {
    "requests_per_minute": 2, "input_tokens_per_minute": None,
    "output_tokens_per_minute": None, "concurrent_requests": 2,
}  # fmt: skip


@pytest.fixture
def redis_server(
    tmp_path_factory: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RedisServer]:
    """A Redis that control reads, and that is waited for, however busy the machine is."""
    monkeypatch.setattr(live_usage, "WAIT_SECONDS", 60)
    monkeypatch.setattr("serving.limits.backend.WAIT_SECONDS", 60)
    monkeypatch.setattr("serving.limits.redis_script.ANSWER_SECONDS", 60)
    with running_redis(tmp_path_factory.mktemp("redis")) as server:
        settings.CONFIG = dataclasses.replace(settings.CONFIG, redis_url=server.url)
        live_usage._client.cache_clear()
        yield server
        live_usage._client().close()
        live_usage._client.cache_clear()


async def use_up(
    server: RedisServer, organization_id: str, times: int, **limits: int
) -> tuple[int, int]:
    """Have a gateway take so many requests of an organization, and go on working on them; return
    Redis's time just before."""
    tenant, count = catalog.tenant(), Counter[tuple[str, str]]()
    organization = OrganizationRecord(
        organization_id, "active", (), "salt", own_limits=RateLimitSettings(**limits)
    )
    plan = make_plan(tenant.key, tenant.project, organization, None)
    assert plan is not None
    limiter = RateLimiter(RedisCounterStore(server.url), lambda: 1, count)
    running = asyncio.create_task(limiter.backend.run())
    await eventually(lambda: limiter.backend.is_open, "the line to Redis")
    moment = server.client.time()
    for _ in range(times):
        await limiter.reserve(plan, "key", "mdl", RequestSize(400, 50))
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await limiter.backend.close()
    return moment


def test_an_organization_sees_its_tier_its_limits_and_what_it_uses(
    api: APIClient,
    base: str,
    org: SeededOrganization,
    redis_server: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rate_limits.create_usage_tier(actor=OPERATOR, name="One", paid_min_nanos=0, figures=FIGURES)
    rate_limits.create_usage_tier(actor=OPERATOR, name="Two", paid_min_nanos=10**9, figures={})
    update_usage_tiers(now=timezone.now())
    rate_limits.set_rate_limit_override(
        actor=OPERATOR, organization=org.organization, model=make_model(), figures=FIGURES
    )
    moment = asyncio.run(use_up(redis_server, org.id, 2, **FIGURES))
    # As of then: a gateway that says nothing more keeps what runs for seconds.
    monkeypatch.setattr(live_usage, "shared_time", lambda *asked: shared_time(*moment, asked[-1]))
    told = api.get(f"{base}/rate-limits").json()
    every = {"service_tiers": list(TIERS)}
    assert told["tier"] == {"name": "One", "paid_min_nanos": 0} | every
    assert told["next_tier"] == {"name": "Two", "paid_min_nanos": 10**9} | every
    overall, on_model = told["in_force"]
    assert overall == {
        "model": None,
        "set_by": "tier",
        "limits": ALL,
        "use": [
            {"measure": "requests", "limit": 2, "used": 2},
            {"measure": "concurrent", "limit": 2, "used": 2},
        ],
    }
    assert (on_model["model"], on_model["set_by"]) == ("small", "operator")
    assert [one["used"] for one in on_model["use"]] == [0, 0]


def test_without_redis_the_use_is_not_known_and_nobody_waits(
    api: APIClient,
    base: str,
    org: SeededOrganization,
    redis_server: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_usage, "WAIT_SECONDS", 0.2)
    rate_limits.set_rate_limit_override(
        actor=OPERATOR, organization=org.organization, model=None, figures=FIGURES
    )
    redis_server.freeze()
    began = time.monotonic()
    told = api.get(f"{base}/rate-limits").json()
    assert time.monotonic() - began < 30  # it would be 60, or for ever
    assert [one["used"] for one in told["in_force"][0]["use"]] == [None, None]


@pytest.mark.parametrize("kind", ["projects", "api-keys"])
def test_members_limit_projects_and_keys(
    api: APIClient, base: str, org: SeededOrganization, key: ApiKey, kind: str
) -> None:
    where = f"{base}/{kind}/{org.project.id if kind == 'projects' else key.id}/rate-limits"
    none = dict.fromkeys(ALL)
    assert api.get(where).json() == {"limits": none, "use": []}
    assert api.patch(where, FIGURES).json()["limits"] == ALL
    assert api.patch(where, {"concurrent_requests": None}).json()["limits"] == ALL | {
        "concurrent_requests": None
    }
    assert api.get(where).json()["limits"]["requests_per_minute"] == 2


def test_nonsense_is_refused_by_its_field(
    api: APIClient, base: str, org: SeededOrganization
) -> None:
    for param, value in (
        ("requests_per_minute", 0), ("requests_per_minute", "many"),
        ("input_tokens_per_minute", 10**9 + 1), ("spend_limit_nanos", 5),
        ("organization_id", "org_x"),
    ):  # fmt: skip
        reply = api.patch(f"{base}/projects/{org.project.id}/rate-limits", {param: value})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
