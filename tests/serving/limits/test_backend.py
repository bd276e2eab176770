"""Three gateways, one Redis, and what may happen to it: limits hold, and nobody waits for it."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from serving.contract.limits import EPOCH, STATE, count_name
from serving.contract.records import OrganizationRecord, RateLimitSettings
from serving.limits import backend
from serving.limits.limiter import RateLimiter, RateLimitExceeded, RateReservation, RequestSize
from serving.limits.plans import RateLimitPlan, make_plan
from serving.limits.redis_script import ScriptCall, ScriptDecision, ScriptReply
from tests.fixtures import catalog
from tests.fixtures.limiters import limiters
from tests.fixtures.redis_server import RedisServer
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.integration
SIZE = RequestSize(prompt_bytes=400, output_tokens_max=50)
"""A hundred tokens of input and fifty of output, as expected at first."""


def plan_of(
    organization_id: str = "org_a", *, is_paying: bool = True, **limits: int
) -> RateLimitPlan:
    tenant, own_limits = catalog.tenant(), RateLimitSettings(**limits)
    organization = OrganizationRecord(
        organization_id, "active", (), "salt_a", own_limits=own_limits, is_paying=is_paying
    )
    plan = make_plan(tenant.key, tenant.project, organization, None)
    assert plan is not None
    return plan


async def ask(
    limiter: RateLimiter, plan: RateLimitPlan, size: RequestSize = SIZE
) -> RateReservation | None:
    """Return the reservation; None where it was refused."""
    try:
        return await limiter.reserve(plan, "key_a", "mdl_demo", size)
    except RateLimitExceeded:
        return None


async def admitted(
    gateways: Sequence[RateLimiter], plan: RateLimitPlan, times: int = 40
) -> list[RateReservation]:
    """Ask all gateways at once, so many times each."""
    asked = await asyncio.gather(*(ask(one, plan) for one in gateways for _ in range(times)))
    return [reservation for reservation in asked if reservation is not None]


async def test_gateways_together_admit_what_one_would(server: RedisServer) -> None:
    plan = plan_of(requests_per_minute=60)
    async with limiters(server) as gateways:
        began = time.monotonic()
        count = len(await admitted(gateways, plan))
        assert 60 <= count <= 60 + time.monotonic() - began
        # What came together went together.
        assert sum(gateway.backend.calls for gateway in gateways) < 40


async def test_what_is_known_is_refused_before_anybody_is_asked(server: RedisServer) -> None:
    plan = plan_of(requests_per_minute=6)
    async with limiters(server, 1) as [gateway]:
        began = time.monotonic()
        await admitted([gateway], plan, 7)
        calls = gateway.backend.calls
        with pytest.raises(RateLimitExceeded) as refused:
            gateway.check_early(plan)
        assert gateway.backend.calls == calls
        excess = refused.value.violation
        assert (excess.check.limit, excess.used, excess.wanted) == (6, 6, 1)
        passed = time.monotonic() - began
        assert 10e6 - passed * 1e6 <= excess.wait <= 10e6


async def test_tokens_are_taken_as_expected_and_settled_as_they_were(server: RedisServer) -> None:
    plan = plan_of(input_tokens_per_minute=600, output_tokens_per_minute=600)
    async with limiters(server, 1) as [gateway]:
        reserved = await ask(gateway, plan)
        assert reserved is not None
        left = {one.check.measure: one.remaining for one in reserved.statuses}
        assert left == {"input_tokens": 500, "output_tokens": 550}
        reserved.settle(input_tokens=20, output_tokens=7_000)
        reserved.settle(input_tokens=999, output_tokens=999)
        reserved.void()

        def known() -> dict[str, int]:
            return {one.check.measure: one.remaining for one in gateway.known_statuses(plan)}

        await eventually(lambda: gateway.backend._outgoing.settled == [])
        again = await ask(gateway, plan)  # refused: a debt is waited for, here of ten minutes
        assert again is None
        assert 580 <= known()["input_tokens"] <= 600
        assert known()["output_tokens"] == 0


async def test_what_came_to_nothing_is_given_back_but_for_the_request(server: RedisServer) -> None:
    plan = plan_of(requests_per_minute=60, input_tokens_per_minute=600, concurrent_requests=1)
    async with limiters(server, 1) as [gateway]:
        began = time.monotonic()
        for number in range(5):
            reserved = await ask(gateway, plan)
            assert reserved is not None, number
            reserved.void()
        again = await ask(gateway, plan)
        assert again is not None
        left = {one.check.measure: one.remaining for one in again.statuses}
        assert 54 <= left["requests"] <= 54 + time.monotonic() - began
        assert left["input_tokens"] == 500


async def test_a_request_that_gives_up_waiting_takes_nothing(server: RedisServer) -> None:
    plan = plan_of(input_tokens_per_minute=600, concurrent_requests=1)
    async with limiters(server, 1) as [gateway]:
        waiting = asyncio.create_task(ask(gateway, plan))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        reserved = None
        async with asyncio.timeout(60):
            while reserved is None:
                reserved = await ask(gateway, plan)
        assert reserved.statuses[0].remaining == 500


async def test_requests_at_once_are_counted_over_all_gateways(server: RedisServer) -> None:
    plan = plan_of(concurrent_requests=5)
    async with limiters(server) as gateways:
        running = await admitted(gateways, plan, 4)
        assert len(running) == 5
        running.pop().void()
        again: list[RateReservation] = []
        async with asyncio.timeout(60):
            while not again:
                again = await admitted(gateways, plan, 4)
        assert len(again) == 1


async def test_where_nothing_is_limited_redis_is_not_asked(server: RedisServer) -> None:
    async with limiters(server, 1) as [gateway]:
        calls = gateway.backend.calls
        only = make_plan(
            catalog.tenant().key,
            catalog.tenant().project,
            OrganizationRecord("org_a", "active", (), "salt_a", own_limits=RateLimitSettings()),
            None,
        )
        assert only is None
        elsewhere = RateLimitPlan("org_a", (), {"mdl_other": plan_of(requests_per_minute=1).base})
        assert await ask(gateway, elsewhere) is None
        assert await gateway.reserve(elsewhere, "key_a", "mdl_demo", SIZE) is None
        assert gateway.backend.calls == calls


# What may happen to Redis


Act = Callable[[RedisServer], None]


@asynccontextmanager
async def trouble(
    server: RedisServer, gateways: Sequence[RateLimiter], begin: Act, end: Act
) -> AsyncIterator[None]:
    """Keep gateways from Redis, for which they wait no longer than half a second meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "WAIT_SECONDS", 0.5)
        for gateway in gateways:  # what each asked before may wait for long
            await ask(gateway, plan_of(input_tokens_per_minute=10**6))
        begin(server)
        try:
            yield
        finally:
            end(server)


async def is_apart(gateways: Sequence[RateLimiter], plan: RateLimitPlan) -> None:
    """Ask until each gateway goes by its part."""
    for gateway in gateways:
        async with asyncio.timeout(60):
            await ask(gateway, plan)
    assert not any(gateway.backend.is_open for gateway in gateways)
    assert all("1 of 3" in (gateway.warning or "") for gateway in gateways)


async def is_together(gateways: Sequence[RateLimiter]) -> None:
    await eventually(lambda: all(gateway.backend.is_open for gateway in gateways))
    assert all(gateway.warning is None for gateway in gateways)


TROUBLES = {
    "frozen": (RedisServer.freeze, RedisServer.thaw),
    "stopped": (RedisServer.stop, RedisServer.start),
    "refusing scripts": (RedisServer.refuse_scripts, RedisServer.allow_scripts),
}


@pytest.mark.parametrize(("begin", "end"), TROUBLES.values(), ids=TROUBLES)
async def test_without_redis_each_gateway_holds_its_part(server, begin, end) -> None:
    plan, other = plan_of(requests_per_minute=60), plan_of(input_tokens_per_minute=10**6)
    async with limiters(server) as gateways:
        async with trouble(server, gateways, begin, end):
            await is_apart(gateways, other)
            began = time.monotonic()
            count = len(await admitted(gateways, plan))
            assert 60 <= count <= 60 + time.monotonic() - began
        await is_together(gateways)
        # What was used meanwhile is known to all of them again.
        assert len(await admitted(gateways, plan)) <= 1 + time.monotonic() - began


@pytest.mark.parametrize(("begin", "end"), TROUBLES.values(), ids=TROUBLES)
async def test_what_was_used_before_counts_without_redis_and_after(server, begin, end) -> None:
    plan = plan_of(requests_per_minute=60)
    async with limiters(server) as gateways:
        began = time.monotonic()
        count = len(await admitted(gateways, plan))
        count += len(await admitted(gateways, plan, 1))  # each hears of what others used
        for _ in range(2):
            async with trouble(server, gateways, begin, end):
                count += len(await admitted(gateways, plan))
                await is_apart(gateways, plan_of(input_tokens_per_minute=10**6))
            await is_together(gateways)
            count += len(await admitted(gateways, plan))
        assert count <= 60 + 1 + time.monotonic() - began


async def test_requests_at_once_are_parted_without_redis(server: RedisServer) -> None:
    plan = plan_of(concurrent_requests=6)
    async with limiters(server) as gateways:
        async with trouble(server, gateways, RedisServer.freeze, RedisServer.thaw):
            assert len(await admitted(gateways, plan, 4)) == 6
            one = plan_of(concurrent_requests=2)
            assert len(await admitted(gateways, one, 4)) == 0
        await is_together(gateways)
        assert await admitted(gateways, plan, 4) == []


async def test_an_emptied_redis_gives_nobody_anything_anew(server: RedisServer) -> None:
    plan = plan_of(requests_per_minute=60, concurrent_requests=60)
    async with limiters(server) as gateways:
        began, running = time.monotonic(), await admitted(gateways, plan)
        running += await admitted(gateways, plan, 1)  # each hears of what others used
        for _ in range(3):
            server.flush()
            running += await admitted(gateways, plan)
        assert len(running) <= 60 + time.monotonic() - began
        await is_together(gateways)
        told = server.client.hvals(count_name("org_a", "concurrent"))
        assert sum(int(count.split()[0]) for count in told) == len(running)


@pytest.mark.parametrize("hours", [-1, 1])
async def test_a_stepped_clock_neither_opens_nor_locks_out(server, hours: int) -> None:
    used, free = plan_of(requests_per_minute=60), plan_of(input_tokens_per_minute=600)
    async with limiters(server) as gateways:
        began = time.monotonic()
        count = len(await admitted(gateways, used))
        count += len(await admitted(gateways, used, 1))  # each hears of what others used
        assert await ask(gateways[0], free) is not None
        # To the script, this is Redis's clock being stepped.
        server.client.hincrbyfloat(STATE, "offset", hours * 3600e6)
        count += len(await admitted(gateways, used))
        assert count <= 60 + time.monotonic() - began
        for gateway in gateways:
            assert await ask(gateway, free) is not None
        await is_together(gateways)
        count += len(await admitted(gateways, used))
        assert count <= 60 + time.monotonic() - began


async def test_a_gateway_that_comes_later_learns_what_is_used(server: RedisServer) -> None:
    plan = plan_of(requests_per_minute=60)
    async with limiters(server) as gateways:
        began = time.monotonic()
        count = len(await admitted(gateways, plan))
        async with limiters(server, 1) as late:
            count += len(await admitted(late, plan))
        assert count <= 60 + time.monotonic() - began


# Where more is to be decided than fits into a call


async def test_a_neighbour_is_in_the_next_call_whatever_others_have_waiting(
    server: RedisServer,
) -> None:
    flood, neighbour = plan_of(requests_per_minute=2_000), plan_of("org_b", requests_per_minute=60)
    never_paid = [
        plan_of(f"org_{number}", is_paying=False, requests_per_minute=60) for number in range(200)
    ]
    async with limiters(server, 1) as [gateway]:
        calls = gateway.backend.calls
        waiting = [asyncio.create_task(ask(gateway, flood)) for _ in range(16 * backend.BATCH_MAX)]
        waiting += [asyncio.create_task(ask(gateway, plan)) for plan in never_paid]
        await asyncio.sleep(0)
        assert await ask(gateway, neighbour) is not None
        assert gateway.backend.calls <= calls + 2, "its own, and one that began since"
        assert await ask(gateway, neighbour) is not None
        assert gateway.backend.calls <= calls + 4, "the one under way, its own, and one since"
        assert None not in await asyncio.gather(*waiting)
        assert gateway.backend._backlog.count == 0


# Where it is slow


class SlowWindow:
    """A Redis that admits everything, `seconds` after it was asked to judge."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def decide(self, names: Sequence[str], batch: ScriptCall) -> ScriptReply:
        if batch.asked:
            await asyncio.sleep(self.seconds)
        now = (time.time() - EPOCH) * 1e6
        told = ScriptDecision(True, (now,), ())
        return ScriptReply(batch.id, "ok", "life", 1e9, now, now, (told,) * len(batch.asked))


@asynccontextmanager
async def slowly(seconds: float) -> AsyncIterator[RateLimiter]:
    """Run a gateway's limiter, one of three, over a slow Redis."""
    limiter = RateLimiter(SlowWindow(seconds), lambda: 3, Counter())
    running = asyncio.create_task(limiter.backend.run())
    try:
        await eventually(lambda: limiter.backend.is_open)
        yield limiter
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_who_waits_for_anothers_call_waits_no_longer_in_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backend, "WAIT_SECONDS", 0.4)
    plan = plan_of(requests_per_minute=60)
    async with slowly(0.36) as limiter:
        first = asyncio.create_task(ask(limiter, plan))
        await eventually(lambda: limiter.backend.calls == 2)
        assert await ask(limiter, plan) is not None
        # A whole wait for its own call would have brought that call's answer.
        assert not limiter.backend.is_open
        assert await first is not None


async def test_who_is_slow_by_turns_is_asked_ever_more_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backend, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(backend, "PROBE_SECONDS", (0.05, 0.4))
    plan = plan_of(requests_per_minute=6_000)
    async with slowly(0.1) as limiter:
        began = time.monotonic()
        while limiter.backend.failures < 4:
            await ask(limiter, plan)
            await asyncio.sleep(0.005)
        assert time.monotonic() - began > 0.05 + 0.1 + 0.2


async def test_who_was_steady_is_asked_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(backend, "STEADY_SECONDS", 0.0)
    plan = plan_of(requests_per_minute=6_000)
    async with slowly(0.1) as limiter:
        for number in range(6):
            await eventually(lambda: limiter.backend.is_open)
            await ask(limiter, plan)
            assert limiter.backend.failures == number + 1
            assert limiter.backend._pause == 2 * backend.PROBE_SECONDS[0]


async def test_who_waits_for_others_of_its_own_tells_nothing_of_redis(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backend, "WAIT_SECONDS", 1.0)
    monkeypatch.setattr(backend, "BATCH_MAX", 2)
    plan = plan_of(requests_per_minute=6_000)
    async with slowly(0.1) as limiter:
        began = time.monotonic()
        await asyncio.gather(*(ask(limiter, plan) for _ in range(30)))
        assert time.monotonic() - began > backend.WAIT_SECONDS
        assert limiter.backend.failures == 0


async def test_a_slow_redis_is_left_whatever_waits_and_all_is_decided_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backend, "WAIT_SECONDS", 0.1)
    monkeypatch.setattr(backend, "BATCH_MAX", 2)
    async with slowly(0.1) as limiter:
        asked = (ask(limiter, plan_of(f"org_{n}", requests_per_minute=60)) for n in range(9))
        assert None not in await asyncio.gather(*asked)
        assert limiter.backend.failures == 1
        assert limiter.backend._backlog.count == 0
