"""A gateway that dies, starts again, or is alone: last known good, nothing lost or doubled."""

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from serving.contract.ids import new_id
from serving.contract.records import DEFAULT_FLEET
from serving.feed import state_store
from serving.feed.changes import ChangeBatch
from serving.feed.state_store import StateFile
from serving.gateway.gateway import FINITE, Gateway
from serving.gateway.operator_api import readiness_problem
from serving.usage import leases
from serving.usage.journal_writer import JournalWriter
from tests.fixtures.gateway import MESSAGES, Stack, running_stack
from tests.fixtures.waiting import eventually

CHAT = "/v1/chat/completions"
ASK = {"model": "demo", "messages": MESSAGES, "max_tokens": 3}


async def test_a_gateway_that_starts_with_control_down_knows_keys_and_has_no_money(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stack.post(CHAT, ASK) as reply:
        assert reply.status == 200
    await saved(stack)
    await stack.stop_gateway()
    await start_alone(stack)
    assert [m.id async for m in stack.client().models.list()] == ["demo", "demo:bf16"]
    monkeypatch.setattr(leases, "WAIT_SECONDS", 0.2)
    async with stack.post(CHAT, ASK) as reply:
        assert (await reply.json())["error"]["code"] == "usage_unavailable"


async def test_events_arrive_after_billings_return_exactly_once(stack: Stack) -> None:
    async with stack.post(CHAT, ASK) as reply:
        ids = [reply.headers["x-request-id"]]
    await stack.one_event()
    stack.control.billing.is_down = True
    for _ in range(5):
        async with stack.post(CHAT, ASK) as reply:
            assert reply.status == 200
            ids.append(reply.headers["x-request-id"])
    await stack.stop_gateway()
    assert len(stack.events) == 1
    stack.control.billing.is_down = False
    await stack.start_gateway()
    await eventually(lambda: len(stack.events) == 6)
    assert sorted(stack.control.billing.events) == sorted(ids)


async def test_the_leases_of_a_previous_life_are_closed_when_their_events_are_booked(
    stack: Stack,
) -> None:
    async with stack.post(CHAT, ASK) as reply:
        assert reply.status == 200
    stack.control.billing.is_down = True
    async with stack.post(CHAT, ASK) as reply:
        assert reply.status == 200
    await stack.stop_gateway()
    granted = set(stack.control.billing.books.leases)
    stack.control.billing.is_down = False
    await stack.start_gateway()
    assert not any(lease.is_stopped for lease in stack.gateway.poll.leases.values())
    async with stack.post(CHAT, ASK) as reply:
        assert reply.status == 200
    assert set(stack.control.billing.books.leases) == granted, "it goes on with what it had"
    await eventually(lambda: len(stack.events) == 3)
    await stack.stop_gateway()
    await eventually(lambda: stack.control.billing.closed >= granted)
    await stack.start_gateway()
    charged = sum(c.charged_nanos for event in stack.events for c in event.charges)
    leases = stack.control.billing.books.leases
    assert sum(leases[id_].keep_nanos for id_ in granted) == charged
    assert stack.control.billing.available("balance:org_a") == 10**12 - charged


async def test_a_request_under_way_when_its_gateway_was_killed_is_waived(stack: Stack) -> None:
    async with stack.post(CHAT, ASK) as reply:
        assert reply.status == 200
    booked = await stack.one_event()
    lost = msgspec.structs.replace(booked, event_id=new_id(), outcome="gateway_lost", charges=())
    stack.gateway.journal.open(lost.event_id, lambda: lost)
    await stack.stop_gateway()
    await stack.start_gateway()
    await eventually(lambda: lost.event_id in stack.control.billing.events)
    assert stack.control.billing.events[lost.event_id].outcome == "gateway_lost"


async def test_a_gateway_with_a_damaged_journal_serves_and_says_what_may_be_lost(
    stack: Stack,
) -> None:
    async with stack.post(CHAT, ASK) as reply:
        assert reply.status == 200
    await stack.stop_gateway()
    (stack.folder / "journal.sqlite3").write_bytes(b"no database at all" * 1_000)
    await stack.start_gateway()
    async with stack.post(CHAT, ASK) as reply:
        assert reply.status == 200
    await eventually(lambda: len(stack.events) == 2)
    status, _, text = stack.operator_app._answer("/readyz")
    assert status == 200
    assert b"ready\nthe journal was damaged (file is not a database) and is now journal." in text
    metrics = await stack.operator_app.metrics()
    assert b"penstock_gateway_journal_damages 1.0" in metrics
    assert b"penstock_gateway_journal_unreadable_rows 0.0" in metrics


async def test_a_bad_record_leaves_the_last_good_one_in_force(stack: Stack) -> None:
    bad = {"model": {"variant_id": "var_demo", "context_tokens": None}, "price": {"price_id": ""}}
    for kind, record in bad.items():
        id_ = {"model": "var_demo", "price": "price_var_demo"}[kind]
        stack.control.feed.publish_raw(kind, id_, record)
    counts = stack.gateway.control_feed.follower.counts.rejected
    await eventually(lambda: counts.total() == 2)
    async with stack.post(CHAT, ASK) as reply:
        assert reply.status == 200


async def test_all_at_once_are_served_as_far_as_the_money_goes_and_the_others_refused(
    tmp_path: Path,
) -> None:
    # The template's allowance fills the context: 512 input at 150 nanos, 100 output at 600. The
    # prompt has 12 tokens, so that three could cost what is there, and five do, each in its turn.
    worst, cost = 512 * 150 + 100 * 600, 12 * 150 + 100 * 600
    body = {"model": "demo", "messages": MESSAGES, "max_tokens": 100}
    async with running_stack(tmp_path, credit_nanos=3 * worst, itl_seconds=0.01) as stack:

        async def ask() -> int:
            async with stack.post(CHAT, body | {"ignore_eos": True}) as reply:
                await reply.read()
                return reply.status

        statuses = await asyncio.gather(*(ask() for _ in range(60)))
        charged = sum(one.charged_nanos for event in await stack.booked() for one in event.charges)
    assert (statuses.count(200), statuses.count(429)) == (5, 55)
    assert charged == 5 * cost
    assert 3 * worst - charged < worst


async def saved(stack: Stack) -> None:
    """Wait until the gateway's disk has all that both feeds told."""
    for feed, told in [
        (stack.gateway.control_feed, stack.control.feed),
        (stack.gateway.fleets[DEFAULT_FLEET].replica_feed, stack.control.fleet),
    ]:
        await eventually(
            lambda feed=feed, told=told: feed.state_writer.saved_version == told.version
        )


async def start_alone(stack: Stack) -> None:
    """Start the gateway with control away."""
    answering, stack.control.url = stack.control.url, "http://127.0.0.1:9"
    await stack.start_gateway()
    stack.control.url = answering


def make_old(folder: Path) -> None:
    """Leave a state as an older version would have written it: keys without `budget_ids`."""
    with closing(sqlite3.connect(folder / "feed.sqlite3")) as db:
        db.execute("UPDATE state SET records = 'those of then'")
        rows = db.execute("SELECT id, record FROM records WHERE kind = 'api_key'").fetchall()
        for id_, record in rows:
            old = msgspec.json.decode(record)
            del old["budget_ids"]
            db.execute(
                "UPDATE records SET record = ? WHERE id = ?", (msgspec.json.encode(old), id_)
            )
        db.commit()


async def test_a_state_of_an_older_version_bridges_and_is_read_anew(stack: Stack) -> None:
    await saved(stack)
    await stack.stop_gateway()
    make_old(stack.folder)
    stack.control.feed.asked_after.clear()
    await stack.start_gateway()
    await eventually(lambda: stack.gateway.directory.principal(stack.tenant.key.digest))
    assert stack.control.feed.asked_after[0] == 0
    async with stack.post(CHAT, ASK) as reply:
        assert reply.status == 200


async def test_keys_that_an_older_state_does_not_tell_are_unknown_and_not_wrong(
    stack: Stack,
) -> None:
    await saved(stack)
    await stack.stop_gateway()
    make_old(stack.folder)
    await start_alone(stack)
    assert not stack.gateway.control_feed.is_fresh
    assert stack.gateway.directory.model("demo", "org_a")
    async with stack.post(CHAT, ASK) as reply:
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")


async def test_a_state_of_this_version_is_followed_on(stack: Stack) -> None:
    await saved(stack)
    known = stack.gateway.control_feed.mirror.version
    await stack.stop_gateway()
    stack.control.feed.asked_after.clear()
    await stack.start_gateway()
    await eventually(lambda: stack.control.feed.asked_after)
    assert stack.control.feed.asked_after[0] >= known > 0


async def test_a_state_that_the_disk_did_not_take_is_written_once_there_is_room(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: StateFile, batch: ChangeBatch) -> bool:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(state_store, "RETRY_SECONDS", 0.05)
    await saved(stack)
    revoked, keeper = stack.tenant.key.key_id, stack.gateway.control_feed.state_writer
    with monkeypatch.context() as full:
        full.setattr(StateFile, "write", fail)
        stack.control.feed.publish("api_key", revoked, None)
        await eventually(lambda: keeper.failures > 2)
        assert b"cannot be saved" in stack.operator_app._answer("/readyz")[2]
        assert keeper.saved_version < stack.control.feed.version
    await saved(stack)
    assert keeper.failures == 0
    # With control away the key stays revoked.
    await stack.stop_gateway()
    await start_alone(stack)
    async with stack.post(CHAT, ASK) as reply:
        assert reply.status == 401


async def test_before_the_first_word_of_control_no_key_is_called_wrong(stack: Stack) -> None:
    await stack.stop_gateway()
    for file in (*stack.folder.glob("feed.*"), *stack.folder.glob("replicas.*")):
        file.unlink()
    await start_alone(stack)
    async with stack.post(CHAT, ASK) as reply:
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    assert stack.operator_app._answer("/readyz")[0] == 503


async def test_a_restored_database_gets_all_usage_again_and_serving_goes_on(stack: Stack) -> None:
    billing, backup = stack.control.billing, stack.control.billing.back_up()
    ids = []
    for number in range(6):
        if number == 3:
            await eventually(lambda: len(stack.events) == 3)
            billing.restore(backup)
            await eventually(lambda: stack.gateway.lineage.known == billing.lineage)
        async with stack.post(CHAT, ASK) as reply:
            assert reply.status == 200
            ids.append(reply.headers["x-request-id"])
    await eventually(lambda: len(stack.events) == 6)
    assert sorted(billing.events) == sorted(ids)


async def fail() -> None:
    raise RuntimeError("a defect")


async def end_early() -> None:
    await asyncio.sleep(0)


async def await_what_another_cancelled() -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


@pytest.mark.parametrize("work", [fail, end_early, await_what_another_cancelled])
async def test_a_gateway_whose_background_work_has_ended_takes_no_new_clients(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, work: Callable[[], Coroutine[None, None, None]]
) -> None:
    monkeypatch.setattr(Gateway, "_background", lambda gateway: {"a courier": work()})
    await stack.stop_gateway()
    await stack.start_gateway()
    await eventually(lambda: stack.operator_app._answer("/readyz")[0] == 503)
    assert readiness_problem(stack.gateway) == "background task ended: a courier"


async def test_background_tasks_that_may_return_leave_a_gateway_ready(stack: Stack) -> None:
    finite = [task for task in stack.gateway._tasks if task.get_name() in FINITE]
    await eventually(lambda: finite and all(task.done() for task in finite))
    assert readiness_problem(stack.gateway) == ""


async def test_a_defect_in_the_journals_thread_makes_a_gateway_not_ready(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    with monkeypatch.context() as broken:
        broken.setattr(JournalWriter, "_write", fail)
        async with stack.post(CHAT, ASK) as reply:
            assert (await reply.json())["error"]["code"] == "usage_unavailable"
        assert readiness_problem(stack.gateway) == "journal unavailable"
    await eventually(lambda: readiness_problem(stack.gateway) == "")
    async with stack.post(CHAT, ASK) as reply:
        assert reply.status == 200


async def test_a_gateway_that_does_not_listen_yet_is_not_ready(stack: Stack) -> None:
    ready = stack.operator_app._answer
    assert ready("/readyz")[0] == 200
    stack.gateway.is_listening = lambda: False
    assert ready("/readyz")[0] == 503
    assert readiness_problem(stack.gateway) == "not listening yet"


async def test_readiness_and_metrics_name_no_tenant(stack: Stack) -> None:
    async with stack.post(CHAT, ASK) as reply:
        assert reply.status == 200
    await stack.one_event()
    operator = stack.operator_app
    assert operator._answer("/readyz")[0] == 200
    assert operator._answer("/healthz")[0] == 200
    text = (await operator.metrics()).decode()
    assert 'penstock_gateway_tokens_total{kind="output",variant="var_demo"} 3.0' in text
    for private in ("org_a", "proj_a", "key_a", stack.tenant.secret):
        assert private not in text
    stack.gateway.drain()
    assert operator._answer("/readyz")[0] == 503
    stack.gateway.is_draining = False


@pytest.mark.parametrize("stream", [False, True])
async def test_no_content_is_logged(
    stack: Stack, stream: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    canary = "canary-5417"
    messages = [{"role": "user", "content": canary}]
    async with stack.post(CHAT, ASK | {"messages": messages, "stream": stream}) as reply:
        await reply.read()
    async with stack.post(CHAT, {"model": "demo", "messages": canary}) as reply:
        assert reply.status == 400
    await stack.one_event()
    out, err = capfd.readouterr()
    assert canary not in out + err
    assert stack.tenant.secret not in out + err
