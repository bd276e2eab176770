"""Whatever is killed, and whenever: who saw the end is in the ledger exactly once."""

import asyncio
import os
import random
import signal

import pytest

from tests.fixtures.books import Books
from tests.fixtures.load import Door, Seen, crowd
from tests.fixtures.stack import Stack
from tests.fixtures.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.full]

VICTIMS = ("gateway", "worker", "control", "postgres", "engine", "fleet")
FEW, MANY = 4, 20
BOOKED_SECONDS_MAX = 300.0
"""A gateway whose books were away asks again after pauses that double."""


def door_of(stack: Stack, email: str) -> Door:
    """Return how a customer of one test alone asks, whom the gateway has served before: so it has
    money at hand, whatever was killed in the tests before."""
    stack.wait_ready()
    door = Door(stack.api_base, stack.tenant(email)["api_key"], stack.model)
    served = 0
    for seed in range(60):
        first = asyncio.run(crowd(door, clients=1, until=lambda sent: sent == 5, seed=seed))
        served = served + 5 if {one.status for one in first} == {200} else 0
        if served >= 15:
            return door
    raise AssertionError(f"the gateway never served {email} fifteen times in a row: {first[-1]}")


async def kill_under_load(
    stack: Stack, door: Door, victim: str, *, kills: int, clients: int
) -> list[Seen]:
    """Kill `victim` so often at random moments while a crowd keeps asking."""
    seed = len(victim)
    rng, killed, pid = random.Random(seed), 0, None

    async def kill_again_and_again() -> None:
        nonlocal killed, pid
        while killed < kills:
            await asyncio.sleep(rng.uniform(0.2, 1.5))
            pid = await asyncio.to_thread(stack.living_pid, victim, other_than=pid)
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
        *((victim, FEW, 6) for victim in VICTIMS),
        ("gateway", 2, 100),
        *(pytest.param(victim, MANY, 6, marks=pytest.mark.long) for victim in VICTIMS),
    ],
)
def test_who_saw_the_end_is_in_the_ledger_exactly_once(
    simulated_stack: Stack, victim: str, kills: int, clients: int
) -> None:
    stack, books = simulated_stack, Books(simulated_stack.database_url)
    door = door_of(stack, f"{victim}-{kills}-{clients}@kill.example")
    seen = asyncio.run(kill_under_load(stack, door, victim, kills=kills, clients=clients))
    finished = [one.request_id for one in seen if one.finished]
    assert len(finished) == len(set(finished)) > 0
    stack.wait_ready()

    wait_until(
        lambda: stack.journal_is_empty() and len(books.events(finished)) == len(finished),
        seconds=BOOKED_SECONDS_MAX,
        what=f"all {len(finished)} finished requests are booked after killing {victim}",
    )
    events = books.events(finished)
    assert {event["outcome"] for event in events.values()} == {"completed"}
    for one in seen:
        if one.finished and one.usage:
            assert events[one.request_id]["output_tokens"] == one.usage["completion_tokens"]
    assert books.ledger_sum_nanos() == 0
    check = stack.penstock("billing", "check-integrity")
    assert check.returncode == 0, check.stdout


def test_with_the_books_away_known_keys_are_served_and_every_event_arrives(
    simulated_stack: Stack,
) -> None:
    stack, books = simulated_stack, Books(simulated_stack.database_url)
    door = door_of(stack, "books@away.example")
    with stack.stopped("control"), stack.stopped("postgres"):
        seen = asyncio.run(crowd(door, clients=2, until=lambda sent: sent >= 60, seed=3))
    finished = [one.request_id for one in seen if one.finished]
    assert len(finished) > 20, seen
    stack.wait_ready()
    wait_until(
        lambda: len(books.events(finished)) == len(finished),
        seconds=BOOKED_SECONDS_MAX,
        what="every event served meanwhile is booked",
    )
    assert stack.penstock("billing", "check-integrity").returncode == 0
