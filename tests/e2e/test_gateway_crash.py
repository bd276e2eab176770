"""Two gateway processes of one host: one port, and nobody notices that one of them dies."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import aiohttp
import pytest

from tests.fixtures.books import Books
from tests.fixtures.engine_counters import read_metrics
from tests.fixtures.load import Door, Seen, crowd
from tests.fixtures.stack import Stack
from tests.fixtures.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.full]

GATEWAYS = ("gateway", "gateway-2")
BOOKED_SECONDS_MAX = 300.0
"""A gateway whose books were away asks again after pauses that double."""


def door_of(stack: Stack) -> Door:
    return Door(stack.api_base, stack.api_key, stack.model)


def metrics(stack: Stack, name: str) -> dict[str, float]:
    port = dict(zip(GATEWAYS, stack.config.ports.gateway_operators, strict=True))[name]
    return read_metrics(f"http://127.0.0.1:{port}/metrics")


def completed(stack: Stack, name: str) -> float:
    return metrics(stack, name).get("penstock_gateway_requests_total", 0)


def completes_more(stack: Stack, name: str, than: float) -> bool:
    return completed(stack, name) > than


def orphan_events(stack: Stack) -> float:
    """Return how many events the first gateway shipped for another; nothing while it restarts."""
    try:
        return metrics(stack, "gateway")["penstock_gateway_orphan_events"]
    except OSError:
        return 0


def journal_rows(stack: Stack, name: str) -> float:
    return metrics(stack, name)["penstock_gateway_journal_rows"]


def serve_until(stack: Stack, claim: Callable[[], bool], *, seed: int) -> list[Seen]:
    """Ask until the claim is true; return what was seen."""
    seen: list[Seen] = []
    for turn in range(50):
        seen += asyncio.run(
            crowd(door_of(stack), clients=6, until=lambda sent: sent >= 40, seed=seed + turn)
        )
        if claim():
            return seen
    raise AssertionError(f"after {len(seen)} requests one of the gateways has served nothing")


def serve_some(stack: Stack, *, seed: int) -> list[Seen]:
    """Ask until both gateways have completed something more."""
    before = {name: completed(stack, name) for name in GATEWAYS}
    return serve_until(
        stack,
        lambda: all(completed(stack, name) > before[name] for name in GATEWAYS),
        seed=seed,
    )


def must_be_booked_once(stack: Stack, seen: list[Seen]) -> None:
    books = Books(stack.database_url)
    finished = [str(one.request_id) for one in seen if one.finished]
    assert len(finished) == len(set(finished)) > 0
    wait_until(
        lambda: len(books.events(finished)) == len(finished),
        seconds=BOOKED_SECONDS_MAX,
        what=f"all {len(finished)} finished requests are booked",
    )
    events = books.events(finished)
    assert {event["outcome"] for event in events.values()} == {"completed"}
    assert books.ledger_sum_nanos() == 0
    check = stack.penstock("billing", "check-integrity")
    assert check.returncode == 0, check.stdout


async def knock(door: Door, ending: asyncio.Event) -> list[tuple[float, float, str]]:
    """Open a connection each few milliseconds; return when those began and ended that were not
    answered."""
    failures: list[tuple[float, float, str]] = []
    url, timeout = f"{door.api_base}/models", aiohttp.ClientTimeout(total=60)

    async def once() -> None:
        began_at = time.monotonic()
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(url, headers=door.headers) as reply,
            ):
                assert reply.status == 200, reply.status
        except (aiohttp.ClientError, TimeoutError, AssertionError) as error:
            failures.append((began_at, time.monotonic(), repr(error)))

    async with asyncio.TaskGroup() as group:
        while not ending.is_set():
            group.create_task(once())
            await asyncio.sleep(0.01)
    return failures


def test_status_shows_both_and_one_port_leads_to_either(two_gateways: Stack) -> None:
    status = json.loads(two_gateways.penstock("status", "--json").stdout)
    shown = {each["name"]: each["pid"] for each in status["processes"]}
    assert len({shown[name] for name in GATEWAYS}) == 2
    ports = [status["ports"][f"{name}, operator"] for name in GATEWAYS]
    assert ports == two_gateways.config.ports.gateway_operators
    text = two_gateways.penstock("status").stdout
    assert all(f"\n  {name} " in text for name in GATEWAYS)
    must_be_booked_once(two_gateways, serve_some(two_gateways, seed=1))


def test_one_is_killed_with_requests_in_flight_and_no_new_one_is_reset(two_gateways: Stack) -> None:
    door = door_of(two_gateways)
    kills: list[tuple[float, float]] = []

    async def under_load() -> tuple[list[Seen], list[tuple[float, float, str]]]:
        ending = asyncio.Event()
        load = asyncio.create_task(crowd(door, clients=8, until=lambda _: ending.is_set(), seed=50))
        knocking = asyncio.create_task(knock(door, ending))
        for name in ("gateway-2", "gateway", "gateway-2"):
            await asyncio.to_thread(
                wait_until,
                partial(completes_more, two_gateways, name, completed(two_gateways, name)),
                seconds=60,
                what=f"{name} completes requests",
            )
            pid = await asyncio.to_thread(two_gateways.living_pid, name)
            before_kill = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            kills.append((before_kill, time.monotonic()))
            await asyncio.to_thread(two_gateways.living_pid, name, other_than=pid)
            await asyncio.to_thread(two_gateways.wait_ready)
        ending.set()
        return await load, await knocking

    seen, failures = asyncio.run(under_load())
    # What was under way when its gateway died is lost; what began since waits for the other.
    late = [
        (began_at, ended_at, error)
        for began_at, ended_at, error in failures
        if not any(began_at <= killed and ended_at >= killing for killing, killed in kills)
    ]
    assert late == []
    assert len([one for one in seen if one.finished]) > 100
    must_be_booked_once(two_gateways, seen)


def test_whoever_starts_next_ships_the_journal_of_one_that_stays_dead(two_gateways: Stack) -> None:
    two_gateways.wait_ready()
    serve_some(two_gateways, seed=80)  # leases are at hand
    with ExitStack() as at_the_end:
        with two_gateways.stopped("control"):
            seen = serve_until(
                two_gateways,
                lambda: all(journal_rows(two_gateways, name) > 0 for name in GATEWAYS),
                seed=120,
            )
            os.kill(two_gateways.living_pid("gateway-2"), signal.SIGKILL)
            # Its next life cannot ship either.
            at_the_end.enter_context(two_gateways.stopped("gateway-2"))
        wait_until(
            lambda: journal_rows(two_gateways, "gateway") == 0,
            seconds=BOOKED_SECONDS_MAX,
            what="the first gateway has shipped its own events",
        )
        finished = [str(one.request_id) for one in seen if one.finished]
        assert len(Books(two_gateways.database_url).events(finished)) < len(finished)

        os.kill(two_gateways.living_pid("gateway"), signal.SIGKILL)
        must_be_booked_once(two_gateways, seen)
        wait_until(
            lambda: orphan_events(two_gateways) > 0,
            seconds=60,
            what="the gateway says whose journal it shipped",
        )
    two_gateways.wait_ready()
