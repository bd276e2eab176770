"""A gateway that dies, starts again, or is alone: last known good, nothing lost or doubled."""

import asyncio
import hashlib
from pathlib import Path

import msgspec
import pytest

from serving.contract.codec import encode
from serving.contract.feed import RECORD_OF_KIND
from serving.contract.ids import new_id
from serving.contract.records import PriceRecord
from serving.feed.mirror import Mirror
from serving.gateway import feeds, state
from tests.support.gateway import MESSAGES, Stack, eventually, running_stack

CHAT = "/v1/chat/completions"
ASK = {"model": "demo", "messages": MESSAGES, "max_tokens": 3}


async def test_known_keys_are_served_by_a_gateway_that_starts_with_control_down(
    stack: Stack,
) -> None:
    async with stack.post(CHAT, ASK) as reply:
        assert reply.status == 200
    await eventually((stack.folder / "feed.state").exists)
    await eventually((stack.folder / "replicas.state").exists)
    await stack.stop_gateway()
    answering, stack.control.url = stack.control.url, "http://127.0.0.1:9"
    await stack.start_gateway()
    stack.control.url = answering
    assert [m.id async for m in stack.client().models.list()] == ["demo", "demo:bf16"]
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
    await eventually(lambda: stack.control.billing.closed >= granted)
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
    status, _, text = stack.gateway.operator_app._answer("/readyz")
    assert status == 200
    assert b"ready\nthe journal was damaged (file is not a database) and is now journal." in text
    metrics = stack.gateway.operator_app._answer("/metrics")[2]
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


async def test_all_at_once_with_money_for_three_exactly_three_are_served(tmp_path: Path) -> None:
    # The template's allowance fills the context: 512 input at 150 nanos, one for the cached split,
    # 100 output at 600.
    worst = 512 * 150 + 1 + 100 * 600
    body = {"model": "demo", "messages": MESSAGES, "max_tokens": 100}
    # A long answer, so that no hold is settled before every request was decided.
    async with running_stack(tmp_path, credit_nanos=3 * worst, itl_seconds=0.01) as stack:

        async def ask() -> int:
            async with stack.post(CHAT, body | {"ignore_eos": True}) as reply:
                await reply.read()
                return reply.status

        statuses = await asyncio.gather(*(ask() for _ in range(60)))
    assert statuses.count(200) == 3
    assert statuses.count(429) == 57


def test_a_damaged_state_file_is_not_believed(tmp_path: Path) -> None:
    path, mirror = tmp_path / "feed.state", Mirror()
    state.save(path, state.page_of(mirror, RECORD_OF_KIND), RECORD_OF_KIND)
    assert state.load(path, RECORD_OF_KIND) is not None
    path.write_bytes(path.read_bytes()[:-1])
    assert state.load(path, RECORD_OF_KIND) is None
    assert state.load(tmp_path / "nothing", RECORD_OF_KIND) is None


def as_before(page: bytes) -> bytes:
    """Return a state file as the version before wrote it: keys without `budget_ids`."""
    raw = msgspec.json.decode(page)
    for change in raw["changes"]:
        change["record"]["schema"] = 1
        if change["kind"] == "api_key":
            del change["record"]["budget_ids"]
    data = msgspec.json.encode(raw)
    return hashlib.sha256(data).hexdigest().encode() + b"\n" + data


async def test_a_state_of_an_older_version_bridges_and_is_read_anew(stack: Stack) -> None:
    path, feed = stack.folder / "feed.state", stack.control.feed
    await stack.stop_gateway()
    page = state.page_of(stack.gateway.directory.mirror, RECORD_OF_KIND)
    path.write_bytes(as_before(encode(page)))
    saved = state.load(path, RECORD_OF_KIND)
    assert saved is not None
    assert (saved.is_current, len(saved.batch.rejected)) == (False, 1)
    feed.asked_after.clear()
    await stack.start_gateway()
    await eventually(lambda: stack.gateway.directory.principal(stack.tenant.key.digest))
    assert feed.asked_after[0] == 0
    async with stack.post(CHAT, ASK) as reply:
        assert reply.status == 200


async def test_keys_that_an_older_state_does_not_tell_are_unknown_and_not_wrong(
    stack: Stack,
) -> None:
    await stack.stop_gateway()
    page = state.page_of(stack.gateway.directory.mirror, RECORD_OF_KIND)
    (stack.folder / "feed.state").write_bytes(as_before(encode(page)))
    answering, stack.control.url = stack.control.url, "http://127.0.0.1:9"
    await stack.start_gateway()
    stack.control.url = answering
    assert not stack.gateway.control_feed.is_fresh
    async with stack.post(CHAT, ASK) as reply:
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")


async def test_a_state_of_this_version_is_followed_on(stack: Stack) -> None:
    await eventually((stack.folder / "feed.state").exists)
    await stack.stop_gateway()
    stack.control.feed.asked_after.clear()
    await stack.start_gateway()
    await eventually(lambda: stack.control.feed.asked_after)
    assert stack.control.feed.asked_after[0] == stack.control.feed.version


@pytest.mark.parametrize("change", ["kind", "field", "type"])
def test_a_state_whose_writer_knew_other_records_is_not_followed_on(
    tmp_path: Path, change: str
) -> None:
    known = dict(RECORD_OF_KIND)
    if change == "kind":
        del known["fleet_size"]
    elif change == "field":
        without = [(name, int) for name in PriceRecord.__struct_fields__ if name != "tier"]
        known["price"] = msgspec.defstruct("PriceRecord", without)
    else:
        other = [(name, float) for name in PriceRecord.__struct_fields__]
        known["price"] = msgspec.defstruct("PriceRecord", other)
    path = tmp_path / "feed.state"
    state.save(path, state.page_of(Mirror(), known), known)
    saved = state.load(path, RECORD_OF_KIND)
    assert saved is not None
    assert not saved.is_current
    state.save(path, state.page_of(Mirror(), RECORD_OF_KIND), RECORD_OF_KIND)
    assert state.load(path, dict(RECORD_OF_KIND)).is_current


async def test_a_state_that_the_disk_did_not_take_is_written_once_there_is_room(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "SAVE_SECONDS", 0.05)
    in_the_way = stack.folder / "feed.new"
    await eventually((stack.folder / "feed.state").exists)
    await asyncio.sleep(2)  # the pause that was set before
    in_the_way.mkdir()
    revoked = stack.tenant.key.key_id
    stack.control.feed.publish("api_key", revoked, None)
    await eventually(lambda: stack.gateway.control_feed.save_failures > 2)
    assert b"cannot be saved" in stack.gateway.operator_app._answer("/readyz")[2]
    assert revoked in keys_saved(stack)
    in_the_way.rmdir()
    await eventually(lambda: stack.gateway.control_feed.save_failures == 0)
    assert revoked not in keys_saved(stack)
    # With control away the key stays revoked.
    await stack.stop_gateway()
    answering, stack.control.url = stack.control.url, "http://127.0.0.1:9"
    await stack.start_gateway()
    stack.control.url = answering
    async with stack.post(CHAT, ASK) as reply:
        assert reply.status == 401


def keys_saved(stack: Stack) -> set[str]:
    saved = state.load(stack.folder / "feed.state", RECORD_OF_KIND)
    assert saved is not None
    return {update.id for update in saved.batch.updates if update.kind == "api_key"}


async def test_before_the_first_word_of_control_no_key_is_called_wrong(stack: Stack) -> None:
    await stack.stop_gateway()
    for file in stack.folder.glob("*.state"):
        file.unlink()
    answering, stack.control.url = stack.control.url, "http://127.0.0.1:9"
    await stack.start_gateway()
    stack.control.url = answering
    async with stack.post(CHAT, ASK) as reply:
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    assert stack.gateway.operator_app._answer("/readyz")[0] == 503


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


async def test_readiness_and_metrics_name_no_tenant(stack: Stack) -> None:
    async with stack.post(CHAT, ASK) as reply:
        assert reply.status == 200
    await stack.one_event()
    operator = stack.gateway.operator_app
    assert operator._answer("/readyz")[0] == 200
    assert operator._answer("/healthz")[0] == 200
    text = operator._answer("/metrics")[2].decode()
    assert 'penstock_gateway_tokens_total{kind="output",variant="var_demo"} 3.0' in text
    for private in ("org_a", "proj_a", "key_a", stack.tenant.secret):
        assert private not in text
    stack.gateway.drain()
    assert operator._answer("/readyz")[0] == 503
    stack.gateway._is_draining = False


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
