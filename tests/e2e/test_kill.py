"""Whatever is killed, and whenever: who saw the end is in the ledger exactly once."""

import asyncio
import os
import random
import signal
import time

import pytest

from tests.fixtures.books import Books
from tests.fixtures.load import Door, Seen, crowd, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.full]

KILLS = 20
CLIENTS = 6


async def kill_under_load(stack, victim: str, seed: int, kills: int, clients: int) -> list[Seen]:
    """Kill `victim` so often at random moments while a crowd keeps asking."""
    rng, killed = random.Random(seed), 0
    door = Door(stack.api_base, stack.api_key, stack.model)

    async def kill_again_and_again() -> None:
        nonlocal killed
        while killed < kills:
            await asyncio.sleep(rng.uniform(0.2, 1.5))
            pid = await asyncio.to_thread(stack.living_pid, victim)
            os.kill(pid, signal.SIGKILL)
            killed += 1

    load = asyncio.create_task(
        crowd(door, clients=clients, until=lambda _: killed >= kills, seed=seed)
    )
    await kill_again_and_again()
    return await load


@pytest.mark.parametrize(
    ("victim", "kills", "clients"),
    [
        *((one, KILLS, CLIENTS) for one in ("gateway", "worker", "control", "postgres", "engine")),
        ("fleet", 5, CLIENTS),
        ("gateway", 3, 100),
    ],
)
def test_who_saw_the_end_is_in_the_ledger_exactly_once(
    simulated_stack, victim: str, kills: int, clients: int
) -> None:
    stack, books = simulated_stack, Books(simulated_stack.database_url)
    seen = asyncio.run(kill_under_load(stack, victim, len(victim), kills, clients))
    finished = [one.request_id for one in seen if one.finished]
    assert len(finished) == len(set(finished)) > 0
    stack.wait_ready(timeout_seconds=60)

    wait_until(
        lambda: stack.journal_is_empty() and len(books.events(finished)) == len(finished),
        timeout_seconds=60,
        what=f"all {len(finished)} finished requests are booked after killing {victim}",
    )
    events = books.events(finished)
    assert {event["outcome"] for event in events.values()} == {"completed"}
    for one in seen:
        if one.finished and one.usage:
            assert events[one.request_id]["output_tokens"] == one.usage["completion_tokens"]
    assert books.ledger_sum_nanos() == 0
    check = stack.penstock("check-integrity")
    assert check.returncode == 0, check.stdout


def test_with_the_books_away_known_keys_are_served_and_every_event_arrives(simulated_stack) -> None:
    stack, books = simulated_stack, Books(simulated_stack.database_url)
    door = Door(stack.api_base, stack.api_key, stack.model)
    # A gateway has money at hand for whom it has served: the one before may just have been killed.
    first = asyncio.run(crowd(door, clients=1, until=lambda sent: sent == 5, seed=2))
    assert {one.status for one in first} == {200}, first
    with stack.stopped("control"), stack.stopped("postgres"):
        ends = time.monotonic() + 10
        seen = asyncio.run(
            crowd(door, clients=2, until=lambda sent: time.monotonic() > ends or sent > 200, seed=3)
        )
    finished = [one.request_id for one in seen if one.finished]
    assert len(finished) > 20
    stack.wait_ready(timeout_seconds=60)
    wait_until(
        lambda: len(books.events(finished)) == len(finished),
        timeout_seconds=60,
        what="every event served meanwhile is booked",
    )
    assert stack.penstock("check-integrity").returncode == 0
