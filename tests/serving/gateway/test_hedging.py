"""An urgent request that one replica lets wait is asked of a second too: one answer, one charge."""

import asyncio
import random
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serving.contract.codec import decode
from serving.contract.ids import moment_of
from serving.contract.usage import UsageEvent
from serving.engine.simulated.engine import SimulatedEngine
from serving.engine.simulated.settings import Fault
from serving.pool.pool import Pool
from serving.usage.journal import JOURNAL, Journal
from tests.fixtures import catalog
from tests.fixtures.gateway import MESSAGES, Stack, running_stack
from tests.fixtures.waiting import eventually

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {
    "model": "demo",
    "messages": MESSAGES,
    "max_tokens": 12,
    "ignore_eos": True,
    "stream": True,
    "service_tier": "priority",
}
USUAL = 30
"""First tokens of each replica that are known before a test begins."""


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Stack]:
    """Two replicas that are known to be quick, and a model that is sold as `priority`."""
    async with running_stack(tmp_path, engines=2, itl_seconds=0.002) as stack:
        await prepare(stack)
        yield stack


async def prepare(stack: Stack) -> None:
    price = catalog.price(tier="priority", price_id="price_priority")
    stack.control.feed.publish("price", price.price_id, price)
    mirror, feed = stack.gateway.directory.mirror, stack.control.feed
    await eventually(lambda: mirror.version == feed.version)
    await eventually(lambda: all(one.free for one in pool_of(stack).replicas.values()))
    remember(pool_of(stack))


def pool_of(stack: Stack) -> Pool:
    return stack.gateway.directory.pools["dep_var_demo"]


def remember(pool: Pool) -> None:
    """Have seen many first tokens of every replica, and enough requests for a few second tries."""
    for replica_id in pool.replicas:
        for _ in range(USUAL):
            for tokens in (1, 2, 4, 8, 16, 32, 64, 128):
                pool.health.hedging.times.record(replica_id, tokens, 0.01, pool.now)
    for _ in range(60):
        pool.health.hedging.budget.record_request()


async def ask(stack: Stack, **fields: Any) -> tuple[int, str, list[str]]:
    async with stack.post(CHAT, ASK | fields) as reply:
        lines = (await reply.text()).splitlines()
        data = [line.removeprefix("data: ") for line in lines if line]
        return reply.status, reply.headers["x-request-id"], data


async def both_at_work(stack: Stack) -> tuple[int, asyncio.Task[tuple[int, str, list[str]]]]:
    """Ask while no engine makes a token; return which was asked first, once both are."""
    engines = [one.engine for one in stack.engines]
    for engine in engines:
        engine.freeze(True)
    asking = asyncio.create_task(ask(stack))
    await eventually(lambda: any(engine.running for engine in engines))
    first = 0 if engines[0].running else 1
    await eventually(lambda: all(engine.running for engine in engines))
    return first, asking


async def must_end(stack: Stack, request_id: str, winner: int) -> UsageEvent:
    """Wait for both events of a request that two engines worked on; return the one that counts."""
    await eventually(lambda: len(stack.events) == 2)
    counts, outrun = sorted(stack.events, key=lambda event: event.outcome == "hedged")
    assert counts.event_id == request_id
    assert counts.replica_id == f"rep_{winner + 1}"
    assert (outrun.outcome, outrun.replica_id) == ("hedged", f"rep_{2 - winner}")
    assert not outrun.charges
    assert moment_of(outrun.event_id) == moment_of(request_id) == outrun.received_at
    await nothing_is_left(stack)
    return counts


async def nothing_is_left(stack: Stack) -> None:
    pool = pool_of(stack)
    await eventually(lambda: stack.gateway.lease_manager.held_nanos() == 0)
    await eventually(lambda: all(one.in_flight == 0 for one in pool.replicas.values()))
    await eventually(lambda: not any(one.engine.slots_used for one in stack.engines))
    assert pool.load_shedder.tokens == stack.gateway.pressure.tokens == 0
    assert not stack.gateway.journal._writer._opened


@pytest.mark.parametrize("stream", [True, False])
async def test_the_second_answers_where_the_first_lets_wait(pair: Stack, stream: bool) -> None:
    slow, quick = pair.engines[0].engine, pair.engines[1].engine
    slow.freeze(True)
    quick.freeze(True)
    asking = asyncio.create_task(ask(pair, stream=stream))
    await eventually(lambda: slow.running and quick.running)
    quick.freeze(False)
    status, request_id, data = await asking
    assert status == 200
    if stream:
        assert data[-1] == "[DONE]"
        assert sum('"content"' in line for line in data) >= 12
        assert {msgspec.json.decode(line)["id"] for line in data[:-1]} == {f"chatcmpl-{request_id}"}
    await eventually(lambda: not slow.slots_used)
    slow.freeze(False)
    event = await must_end(pair, request_id, winner=1)
    assert (event.outcome, event.output_tokens) == ("completed", 12)
    assert event.charges
    metrics = pair.gateway.metrics.registry.get_sample_value
    assert metrics("penstock_gateway_hedges_total", {"winner": "second"}) == 1
    assert (slow.finished["abort"], slow.counts["generation_tokens"] % 12) == (1, 0)


async def test_the_second_is_cancelled_when_the_first_has_a_token(pair: Stack) -> None:
    first, asking = await both_at_work(pair)
    pair.engines[first].engine.freeze(False)
    second = pair.engines[1 - first].engine
    await eventually(lambda: not second.slots_used)
    status, request_id, data = await asking
    assert (status, data[-1]) == (200, "[DONE]")
    second.freeze(False)
    event = await must_end(pair, request_id, winner=first)
    assert event.outcome == "completed"
    assert second.finished["abort"] == 1


async def test_the_second_goes_on_where_the_first_breaks(pair: Stack) -> None:
    first, asking = await both_at_work(pair)
    die(pair.engines[first].engine)
    await eventually(lambda: pool_of(pair).replicas[f"rep_{first + 1}"].incidents == 1)
    pair.engines[1 - first].engine.freeze(False)
    status, request_id, data = await asking
    assert (status, data[-1]) == (200, "[DONE]")
    event = await must_end(pair, request_id, winner=1 - first)
    assert event.outcome == "completed"
    assert pair.gateway.metrics.retries == 0


async def test_the_first_goes_on_where_the_second_breaks(pair: Stack) -> None:
    first, asking = await both_at_work(pair)
    die(pair.engines[1 - first].engine)
    await eventually(lambda: pool_of(pair).replicas[f"rep_{2 - first}"].incidents == 1)
    pair.engines[first].engine.freeze(False)
    status, request_id, data = await asking
    assert (status, data[-1]) == (200, "[DONE]")
    assert (await must_end(pair, request_id, winner=first)).outcome == "completed"


async def test_where_both_break_there_is_one_error(pair: Stack) -> None:
    first, asking = await both_at_work(pair)
    for place in (first, 1 - first):
        die(pair.engines[place].engine)
        replica = pool_of(pair).replicas[f"rep_{place + 1}"]
        await eventually(lambda replica=replica: asking.done() or replica.incidents == 1)
    status, request_id, _ = await asking
    assert status == 503
    event = await must_end(pair, request_id, winner=1 - first)
    assert (event.outcome, event.charges) == ("engine_failed", ())


async def test_who_hangs_up_on_both_pays_for_one(pair: Stack) -> None:
    first, asking = await both_at_work(pair)
    asking.cancel()
    await eventually(lambda: pair.gateway.disconnect_drain.total == 1)
    pair.engines[first].engine.freeze(False)
    await eventually(lambda: len(pair.events) == 2)
    request_id = next(one.event_id for one in pair.events if one.outcome != "hedged")
    event = await must_end(pair, request_id, winner=first)
    assert (event.outcome, event.output_tokens > 0) == ("client_cancelled", True)


async def test_a_gateway_that_ends_cuts_both_and_charges_nothing(pair: Stack) -> None:
    first, asking = await both_at_work(pair)
    pair.gateway.app.inference.stop_all()
    status, request_id, _ = await asking
    assert status == 503
    event = await must_end(pair, request_id, winner=first)
    assert (event.outcome, event.charges) == ("timed_out", ())


@pytest.mark.parametrize("is_chosen", [False, True])
async def test_what_is_left_on_disk_by_a_kill_is_one_loss_and_one_hedge(
    pair: Stack, tmp_path: Path, is_chosen: bool
) -> None:
    first, asking = await both_at_work(pair)
    second = pair.engines[1 - first].engine
    if is_chosen:
        second.freeze(False)
        await eventually(lambda: any(run.position for run in second.running) or asking.done())
    await eventually(lambda: is_written(pair))
    killed = tmp_path / "killed"
    killed.mkdir()
    for part in pair.folder.glob(f"{JOURNAL}*"):
        shutil.copy(part, killed)
    journal = Journal(killed / JOURNAL)
    found = [decode(row.body, UsageEvent) for row in await journal.next_finished(100)]
    await journal.close()
    ends = {event.outcome: event for event in found if event.event_id not in booked(pair)}
    if not is_chosen:
        assert set(ends) == {"gateway_lost", "hedged"}
        assert ends["gateway_lost"].replica_id == f"rep_{first + 1}"
        assert ends["hedged"].replica_id == f"rep_{2 - first}"
    assert not any(event.charges for event in ends.values() if event.outcome != "completed")
    for engine in pair.engines:
        engine.engine.freeze(False)
    await asking
    await eventually(lambda: len(pair.events) == 2)


def is_written(stack: Stack) -> bool:
    """Tell whether nothing is left to be written behind."""
    writer = stack.gateway.journal._writer
    left = (writer._opened, writer._opened_before, writer._waiting, writer._is_writing)
    return not any(left)


def booked(stack: Stack) -> set[str]:
    return {event.event_id for event in stack.events}


@pytest.mark.parametrize(
    "fields",
    [
        {"service_tier": "default"},
        {"n": 2},
        {"response_format": {"type": "json_object"}},
    ],
    ids=["default", "choices", "format"],
)
async def test_other_requests_are_worked_on_once(pair: Stack, fields: dict[str, Any]) -> None:
    engines = [one.engine for one in pair.engines]
    for engine in engines:
        engine.freeze(True)
    asking = asyncio.create_task(ask(pair, **fields))
    await eventually(lambda: any(engine.running for engine in engines))
    await asyncio.sleep(0.25)  # more than twice what a second try would have waited
    assert sum(len(engine.running) for engine in engines) == 1
    for engine in engines:
        engine.freeze(False)
    assert (await asking)[0] == 200


async def test_through_any_trouble_each_request_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.pool.hedging.SECONDS_MIN", 0.005)
    chance = random.Random(7)
    async with running_stack(tmp_path, engines=3, itl_seconds=0.002) as stack:
        await prepare(stack)
        pool, whole = pool_of(stack), list[str]()
        for _ in range(600):
            pool.health.hedging.budget.record_request()

        async def one() -> None:
            pool.health.hedging.budget.record_request()
            await asyncio.sleep(chance.uniform(0, 1.0))
            asking = asyncio.create_task(ask(stack))
            if chance.random() < 0.2:
                await asyncio.sleep(chance.uniform(0, 0.05))
                asking.cancel()
            ended = (await asyncio.gather(asking, return_exceptions=True))[0]
            if isinstance(ended, tuple) and ended[2][-1] == "[DONE]":
                whole.append(ended[1])

        async def trouble() -> None:
            for _ in range(30):
                await asyncio.sleep(chance.uniform(0, 0.05))
                engine = chance.choice(stack.engines)
                kind = chance.choice(("freeze", "reset", "drop", "stall"))
                if kind == "freeze":
                    engine._set_fault(Fault("freeze", seconds=0.04))
                elif kind == "drop":
                    drop(engine.engine)
                else:
                    engine.script.add(Fault(kind, seconds=0.05))  # type: ignore[arg-type]

        asked, outrun = 0, list[UsageEvent]()
        while len(outrun) <= 5:  # how many each lot makes is up to chance and to the machine
            assert asked < 3000
            await asyncio.gather(trouble(), *(one() for _ in range(100)))
            asked += 100
            await nothing_is_left(stack)
            await eventually(lambda: stack.gateway.journal.unacknowledged_count == 0)
            outrun = [event for event in stack.events if event.outcome == "hedged"]
        completed = [event for event in stack.events if event.outcome == "completed"]
        assert len(stack.events) - len(outrun) <= asked
        assert not any(event.charges for event in outrun)
        assert {event.event_id for event in completed} >= set(whole)


def die(engine: SimulatedEngine) -> None:
    """Break off all work, and take no more."""
    engine.is_dead = True
    drop(engine)


def drop(engine: SimulatedEngine) -> None:
    """Break the connection of all that an engine works on."""
    for run, outlet in list(engine.running.items()):
        outlet.sink.abort()  # type: ignore[attr-defined]
        engine.cancel(run)
