"""A request that names an idempotency key is worked on once: every route and both ways of telling,
made of the table in `routes.py`."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from serving.contract.idempotency import CLAIMS_MAX, ClaimInProgress, ClaimReply, IdempotencyClaim
from serving.engine.simulated.settings import Fault
from serving.gateway.http.response import HttpResponse
from serving.gateway.idempotency import execution, guard, keys
from serving.pool.overload import SharedCapacity
from serving.pool.slot_request import SlotRequest
from serving.usage import claims
from tests.fixtures import catalog
from tests.fixtures.gateway import Stack, running_stack
from tests.fixtures.keyed import KEY, ask, take_keys
from tests.fixtures.raw_http import RawClient, request
from tests.fixtures.waiting import eventually
from tests.serving.gateway.routes import ANSWERS, CHAT, COUNTING, METERED, Route


@pytest.fixture
async def stack(stack: Stack) -> Stack:
    """A model of each kind."""
    await stack.offer_embeddings()
    return stack


metered = pytest.mark.parametrize("route", METERED.values(), ids=METERED)
told = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
LONG = STREAM | {"max_tokens": 200, "ignore_eos": True}


@pytest.fixture
async def keyed(stack: Stack) -> Stack:
    """A stack whose organization takes keys."""
    await take_keys(stack)
    return stack


@pytest.fixture
async def paced(tmp_path: Path) -> AsyncIterator[Stack]:
    """The same, whose engine takes 5 ms a token."""
    async with running_stack(tmp_path, itl_seconds=0.005) as running:
        await take_keys(running)
        yield running


def wire(stack: Stack, **extra: object) -> bytes:
    return request(
        CHAT.path, stack.tenant.secret, CHAT.body | extra, b"idempotency-key: order-17\r\n"
    )


async def outcomes(stack: Stack) -> list[str]:
    """Return how the requests that reached an engine ended, once all are booked."""
    await eventually(lambda: stack.gateway.journal.unacknowledged_count == 0)
    return sorted(event.outcome for event in stack.events)


async def is_at_work(stack: Stack, tokens: int = 3) -> None:
    engine = stack.engines[0].engine
    await eventually(lambda: engine.counts["generation_tokens"] >= tokens)


def note_waits(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Return what is set once somebody follows another request of its key, or waits for it."""
    waits = asyncio.Event()

    def noted(wait: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        def wait_noted(response: HttpResponse, of: execution.IdempotentExecution) -> Awaitable[Any]:
            waits.set()
            return wait(response, of)

        return wait_noted

    for name in ("join", "_wait"):
        monkeypatch.setattr(guard, name, noted(getattr(guard, name)))
    return waits


@pytest.mark.parametrize(("route", "streamed"), ANSWERS.values(), ids=ANSWERS)
async def test_the_same_request_gets_the_same_bytes_and_is_charged_once(
    keyed: Stack, route: Route, streamed: bool
) -> None:
    asked = route.asked(streamed=streamed)
    first = await ask(keyed, route, **asked)
    again = await ask(keyed, route, **asked)
    assert (first.status, again.status) == (200, 200)
    assert first.body == again.body
    assert (first.is_again, again.is_again) == (False, True)
    assert again.headers["original-request"] == first.headers["x-request-id"]
    assert again.headers["x-request-id"] != first.headers["x-request-id"]
    assert again.headers["content-type"] == first.headers["content-type"]
    assert again.headers.get("x-penstock-cost-nanos") == first.headers.get("x-penstock-cost-nanos")
    assert await outcomes(keyed) == ["completed"]
    assert keyed.events[0].event_id == first.headers["x-request-id"]


@metered
async def test_another_body_or_route_with_the_key_is_refused(keyed: Stack, route: Route) -> None:
    first = await ask(keyed, route)
    other = await ask(keyed, route, **route.long)
    elsewhere = await ask(keyed, next(one for one in METERED.values() if one is not route))
    assert (first.status, other.status, elsewhere.status) == (200, 409, 409)
    for refused in (other, elsewhere):
        assert "'Idempotency-Key'" in refused.body.decode()
        assert refused.headers["x-should-retry"] == "false"
    assert route.error(409, other.body.decode()) == (
        "invalid_request_error" if route.is_anthropics else "idempotency_conflict"
    )
    assert await outcomes(keyed) == ["completed"]


@metered
async def test_where_it_is_off_the_header_is_refused_by_name(stack: Stack, route: Route) -> None:
    refused = await ask(stack, route)
    assert refused.status == 400
    assert "'Idempotency-Key'" in refused.body.decode()
    assert "Settings" in refused.body.decode()
    assert route.error(400, refused.body.decode()) == (
        "invalid_request_error" if route.is_anthropics else "idempotency_not_enabled"
    )
    assert stack.control.keys.asked == []
    assert (await ask(stack, route, headers={})).status == 200


async def test_counting_takes_a_key_where_it_is_on_and_keeps_nothing(keyed: Stack) -> None:
    first, again = await ask(keyed, COUNTING), await ask(keyed, COUNTING)
    assert first.status == 200
    assert first.body == again.body
    assert keyed.control.keys.asked == []
    await take_keys(keyed, takes=False)
    assert (await ask(keyed, COUNTING)).status == 400


@pytest.mark.parametrize("key", ["", "x" * 256, "Schlüssel", "tab\there"])
async def test_what_is_no_key_is_refused(keyed: Stack, key: str) -> None:
    extra = b"idempotency-key: " + key.encode("latin-1") + b"\r\n"
    async with RawClient(keyed.url) as client:
        await client.send(request(CHAT.path, keyed.tenant.secret, CHAT.body, extra))
        head, _, body = (await client.read()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert json.loads(body)["error"]["param"] == "Idempotency-Key"


async def test_requests_without_a_key_ask_control_nothing(keyed: Stack) -> None:
    assert (await ask(keyed, headers={})).status == 200
    assert (await ask(keyed, headers={})).status == 200
    assert keyed.control.keys.asked == []
    assert await outcomes(keyed) == ["completed", "completed"]


async def test_organizations_have_keys_of_their_own(keyed: Stack) -> None:
    other = catalog.tenant("b")
    catalog.publish(keyed.control, other)
    await take_keys(keyed, other)
    mine = await ask(keyed)
    theirs = await ask(keyed, headers=KEY | {"authorization": f"Bearer {other.secret}"})
    assert (mine.status, theirs.status) == (200, 200)
    assert not theirs.is_again
    assert mine.headers["x-request-id"] != theirs.headers["x-request-id"]
    assert await outcomes(keyed) == ["completed", "completed"]


async def test_control_is_told_no_key_and_no_word_of_the_answer(keyed: Stack) -> None:
    answer = await ask(keyed)
    said = json.loads(answer.body)["choices"][0]["message"]["content"]
    [kept] = keyed.control.keys.claims.values()
    assert kept.sealed
    for secret in (b"order-17", said.encode(), b"penstock", CHAT.path.encode()):
        assert secret not in kept.sealed
        assert secret.decode() not in repr(kept.claim)


async def test_a_model_that_a_key_may_not_use_is_not_told_of_again(keyed: Stack) -> None:
    assert (await ask(keyed)).status == 200
    narrow = catalog.tenant("narrow", models=("another",))
    key = narrow.key.__struct_fields__
    fields = {name: getattr(narrow.key, name) for name in key} | {
        "organization_id": "org_a", "project_id": "proj_a",
    }  # fmt: skip
    keyed.control.feed.publish("api_key", "key_narrow", type(narrow.key)(**fields))
    await take_keys(keyed)
    refused = await ask(keyed, headers=KEY | {"authorization": f"Bearer {narrow.secret}"})
    assert refused.status == 404


@told
async def test_who_asks_meanwhile_joins(paced: Stack, streamed: bool) -> None:
    extra = LONG if streamed else {"max_tokens": 200, "ignore_eos": True}
    first = asyncio.create_task(ask(paced, **extra))
    await is_at_work(paced)
    others = await asyncio.gather(*(ask(paced, **extra) for _ in range(5)))
    answer = await first
    assert {one.body for one in others} == {answer.body}
    assert all(one.status == 200 and one.is_again for one in others)
    assert await outcomes(paced) == ["completed"]
    assert len(paced.control.keys.asked) == 1


async def test_who_joins_a_stream_is_told_at_once_what_was_said(paced: Stack) -> None:
    first = asyncio.create_task(ask(paced, **LONG))
    await is_at_work(paced)
    async with paced.post(CHAT.path, CHAT.body | LONG, KEY) as reply:
        assert await reply.content.readuntil(b"\n\n")
        assert not first.done()
    assert (await first).status == 200
    assert await outcomes(paced) == ["completed"]


async def test_another_body_meanwhile_is_refused_without_control(paced: Stack) -> None:
    first = asyncio.create_task(ask(paced, **LONG))
    await is_at_work(paced)
    assert (await ask(paced, temperature=0.5)).status == 409
    assert (await first).status == 200
    assert len(paced.control.keys.asked) == 1


async def test_a_hang_up_gives_the_key_up(paced: Stack) -> None:
    async with RawClient(paced.url) as client:
        await client.send(wire(paced, **LONG))
        await is_at_work(paced)
    await eventually(lambda: not paced.control.keys.claims)
    again = await ask(paced, **LONG)
    assert (again.status, again.is_again) == (200, False)
    assert await outcomes(paced) == ["client_cancelled", "completed"]


async def test_an_answer_goes_on_for_who_joined_it(paced: Stack) -> None:
    async with RawClient(paced.url) as client:
        await client.send(wire(paced, **LONG))
        await is_at_work(paced)
        joined = asyncio.create_task(ask(paced, **LONG))
        await eventually(lambda: paced.gateway.metrics.keyed["joined"] == 1)
    answer, later = await joined, await ask(paced, **LONG)
    assert answer.body.endswith(b"data: [DONE]\n\n")
    assert answer.body == later.body
    assert await outcomes(paced) == ["completed"]


async def test_when_the_last_who_joined_leaves_too_the_work_ends(paced: Stack) -> None:
    async with RawClient(paced.url) as first, RawClient(paced.url) as second:
        await first.send(wire(paced, **LONG))
        await is_at_work(paced)
        await second.send(wire(paced, **LONG))
        await second.read()
        first.socket.close()
        connections = paced._server.connections
        await eventually(lambda: len(connections) == 1)
        assert paced.engines[0].engine.slots_used == 1
    await eventually(lambda: paced.engines[0].engine.slots_used == 0)
    await eventually(lambda: paced.gateway.app.in_flight == 0)
    assert await outcomes(paced) == ["client_cancelled"]
    await eventually(lambda: not paced.control.keys.claims)


async def test_who_joined_a_stream_that_breaks_off_is_told_so_and_the_key_is_free(
    paced: Stack,
) -> None:
    paced.engines[0].script.add(Fault("die", after_chunks=40))
    first = asyncio.create_task(ask(paced, **LONG))
    await is_at_work(paced)
    joined = await ask(paced, **LONG)
    assert b"model_unavailable" in (await first).body
    assert b"idempotency_unavailable" in joined.body
    assert not joined.body.endswith(b"[DONE]\n\n")
    assert (await ask(paced, **LONG)).body.endswith(b"[DONE]\n\n")
    assert await outcomes(paced) == ["completed", "engine_failed"]


async def test_who_joined_what_came_to_nothing_tries_alone(
    keyed: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, waits, claim = keyed.control.keys, note_waits(monkeypatch), keyed.control.keys.claim

    def fail_once(asked: IdempotencyClaim) -> ClaimReply:
        monkeypatch.setattr(keys, "claim", claim)
        raise web.HTTPServiceUnavailable

    monkeypatch.setattr(keys, "claim", fail_once)
    keys.may_claim.clear()
    first = asyncio.create_task(ask(keyed))
    await eventually(lambda: keyed.gateway.app.inference.idempotency._executions)
    second = asyncio.create_task(ask(keyed))
    await eventually(waits.is_set)
    keys.may_claim.set()
    assert (await first).status == 503
    answer = await second
    assert (answer.status, answer.is_again) == (200, False)
    assert await outcomes(keyed) == ["completed"]


async def test_what_is_refused_gives_the_key_up(keyed: Stack) -> None:
    keyed.control.billing.limits["balance:org_a"] = 1
    assert (await ask(keyed)).status == 429
    keyed.control.billing.limits["balance:org_a"] = 10**12
    keyed.engines[0].script.add(Fault("error", status=400))

    async def is_refused_by_the_engine() -> bool:
        return (await ask(keyed)).status == 400

    await eventually(is_refused_by_the_engine)  # the lack of money is believed for a while
    assert (await ask(keyed)).status == 200
    assert (await ask(keyed)).is_again
    assert await outcomes(keyed) == ["completed", "refused_by_engine"]


async def test_what_becomes_of_keys_is_counted(paced: Stack) -> None:
    first = asyncio.create_task(ask(paced, **LONG))
    await is_at_work(paced)
    await asyncio.gather(first, ask(paced, **LONG))
    await ask(paced, **LONG)
    await ask(paced, temperature=0.5)
    paced.control.keys.is_down = True
    await ask(paced, headers={"idempotency-key": "another"})
    assert paced.gateway.metrics.keyed == {
        "worked_on": 1, "joined": 1, "given_again": 1, "other_request": 1, "unavailable": 1,
    }  # fmt: skip
    families = {family.name: family for family in paced.gateway.metrics.collect()}
    samples = families["penstock_gateway_keyed_requests"].samples
    assert {sample.labels["ending"] for sample in samples} == set(paced.gateway.metrics.keyed)


async def test_without_money_what_was_answered_is_given_again(keyed: Stack) -> None:
    first = await ask(keyed)
    keyed.control.billing.limits["balance:org_a"] = 1
    assert (await ask(keyed)).body == first.body


async def test_while_control_is_away_nothing_is_done_and_that_is_said_at_once(
    keyed: Stack,
) -> None:
    keyed.control.keys.is_down = True
    refused = await ask(keyed)
    assert (refused.status, refused.error["code"]) == (503, "idempotency_unavailable")
    assert refused.headers["retry-after"] == "2"
    assert (await ask(keyed, headers={})).status == 200
    keyed.control.keys.is_down = False
    assert (await ask(keyed)).status == 200
    assert await outcomes(keyed) == ["completed", "completed"]


async def test_a_control_that_is_slow_is_not_waited_for_long(
    keyed: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = keyed.control.keys
    keys.may_claim.clear()
    with monkeypatch.context() as patch:
        patch.setattr(claims, "CLAIM_SECONDS", 0.3)
        assert (await ask(keyed)).status == 503
    await eventually(lambda: keys.early)
    keys.may_claim.set()
    await eventually(lambda: keys.asked)
    assert keys.claims == {}, "a claim that came late was given up before it"
    assert (await ask(keyed)).status == 200
    assert await outcomes(keyed) == ["completed"]


async def test_a_claim_whose_answer_was_lost_holds_up_nobody(keyed: Stack) -> None:
    keyed.control.keys.loses_answers = True
    assert (await ask(keyed)).status == 503
    keyed.control.keys.loses_answers = False
    await eventually(lambda: not keyed.control.keys.claims)
    assert (await ask(keyed)).status == 200


@told
async def test_an_answer_that_cannot_be_kept_does_not_complete(
    paced: Stack, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    extra = LONG if streamed else {"max_tokens": 200, "ignore_eos": True}
    first = asyncio.create_task(ask(paced, **extra))
    await is_at_work(paced)
    paced.control.keys.is_down = True
    with monkeypatch.context() as patch:
        patch.setattr(claims, "KEEP_SECONDS", 0.5)
        refused = await first
    assert refused.status == (200 if streamed else 503)
    assert b"idempotency_unavailable" in refused.body
    assert not refused.body.endswith(b"data: [DONE]\n\n")
    paced.control.keys.is_down = False
    await eventually(lambda: not paced.control.keys.claims)
    answer = await ask(paced, **extra)
    assert (answer.status, answer.is_again) == (200, False)
    assert await outcomes(paced) == ["completed", "gateway_lost"]
    [lost] = [event for event in paced.events if event.outcome == "gateway_lost"]
    assert lost.output_tokens > 0
    assert sum(part.charged_nanos for part in lost.charges) == 0
    assert paced.gateway.lease_manager.held_nanos() == 0


async def test_an_answer_waits_for_a_control_that_starts_anew(
    paced: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "AGAIN_SECONDS", 0.05)
    first = asyncio.create_task(ask(paced, **LONG))
    await is_at_work(paced)
    paced.control.keys.is_down = True
    await is_at_work(paced, 200)
    await eventually(lambda: paced.control.keys.turned_away >= 2)
    assert not first.done()
    paced.control.keys.is_down = False
    assert (await first).body.endswith(b"data: [DONE]\n\n")
    assert await outcomes(paced) == ["completed"]


async def test_a_key_that_another_has_meanwhile_does_not_complete_twice(paced: Stack) -> None:
    """A database restored from a backup has forgotten the claim, and given the key to another."""
    first = asyncio.create_task(ask(paced, **LONG))
    await is_at_work(paced)
    keys = paced.control.keys
    [(place, kept)] = keys.claims.items()
    fields = {name: getattr(kept.claim, name) for name in kept.claim.__struct_fields__}
    kept.claim = type(kept.claim)(**fields | {"event_id": "0" * 8 + "-0000-7000-8000-" + "0" * 12})
    assert b"idempotency_unavailable" in (await first).body
    assert await outcomes(paced) == ["gateway_lost"]
    assert keys.claims[place].is_kept is False


async def test_a_forgotten_claim_is_made_anew_with_its_answer(paced: Stack) -> None:
    first = asyncio.create_task(ask(paced, **LONG))
    await is_at_work(paced)
    paced.control.keys.claims.clear()
    answer = await first
    assert (await ask(paced, **LONG)).body == answer.body
    assert await outcomes(paced) == ["completed"]


@pytest.mark.parametrize("bound", ["of one", "of all"])
async def test_an_answer_too_long_to_keep_completes_and_is_not_worked_on_again(
    keyed: Stack, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    if bound == "of one":
        monkeypatch.setattr(execution, "COPY_BYTES_MAX", 1_000)
    else:
        monkeypatch.setattr(keyed.gateway.app.inference.idempotency._recordings, "size_max", 1_000)
    first, again = await ask(keyed, **LONG), await ask(keyed, **LONG)
    assert first.body.endswith(b"data: [DONE]\n\n")
    assert (again.status, again.error["code"]) == (409, "idempotency_answer_lost")
    assert again.headers["x-should-retry"] == "false"
    assert await outcomes(keyed) == ["completed"]


async def test_an_answer_that_seals_too_long_is_not_kept(
    keyed: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "SEALED_BYTES_MAX", 100)
    assert (await ask(keyed)).status == 200
    assert (await ask(keyed)).status == 409
    assert await outcomes(keyed) == ["completed"]


async def test_an_answer_given_again_needs_room_of_its_own_organization(keyed: Stack) -> None:
    room = keyed.gateway.app.inference.body_memory
    extra = {"max_tokens": 200, "ignore_eos": True}
    first = await ask(keyed, **extra)
    room.add(SlotRequest("org_a"), room.size_max // 2 - len(first.body))
    refused = await ask(keyed, **extra)
    assert (refused.status, refused.error["code"]) == (503, "server_is_overloaded")
    room.add(SlotRequest("org_a"), len(first.body) - room.size_max // 2)
    assert (await ask(keyed, **extra)).body == first.body
    assert room.held == 0


def test_a_copy_is_held_until_the_last_who_reads_it_has_left() -> None:
    room = SharedCapacity(1_000)
    kept = execution.ResponseRecording(room, SlotRequest("org_a"))
    kept.add((), bytes(100))
    slow, fast = kept.subscribe(), kept.subscribe()
    kept.end()
    kept.unsubscribe(fast)
    assert (room.held, kept.pieces) == (100, [bytes(100)])
    kept.unsubscribe(slow)
    assert (room.held, kept.pieces) == (0, [])


def test_ones_copies_leave_room_for_anothers() -> None:
    room = SharedCapacity(1_000)
    greedy = [execution.ResponseRecording(room, SlotRequest("org_a")) for _ in range(10)]
    for one in greedy:
        one.add((), bytes(100))
    assert sum(one.is_too_long for one in greedy) == 5
    modest = execution.ResponseRecording(room, SlotRequest("org_b"))
    modest.add((), bytes(100))
    assert not modest.is_too_long
    for one in (*greedy, modest):
        one.end()
    assert room.held == 0


async def test_a_key_lives_for_a_day(keyed: Stack) -> None:
    first = await ask(keyed)
    keyed.control.keys.now = lambda: datetime.now(UTC) + timedelta(hours=23, minutes=59)
    assert (await ask(keyed)).body == first.body
    keyed.control.keys.now = lambda: datetime.now(UTC) + timedelta(hours=24, minutes=1)
    assert not (await ask(keyed)).is_again
    assert await outcomes(keyed) == ["completed", "completed"]


async def test_an_organization_has_only_so_many_keys(keyed: Stack) -> None:
    keys = keyed.control.keys
    assert (await ask(keyed)).status == 200
    [kept] = keys.claims.values()
    for number in range(CLAIMS_MAX - 1):
        keys.claims["org_a", str(number)] = kept
    refused = await ask(keyed, headers={"idempotency-key": "one more"})
    assert (refused.status, refused.error["code"]) == (429, "idempotency_storage_full")
    assert "100,000" in refused.error["message"]
    assert (await ask(keyed)).is_again


async def test_one_gateway_of_two_works_and_the_other_says_so(paced: Stack, tmp_path: Path) -> None:
    second = Stack(paced.control, tmp_path / "second", paced.tenant)
    await second.start_gateway()
    await second.ready()
    await eventually(lambda: second.gateway.directory.mirror.version == paced.control.feed.version)
    try:
        first = asyncio.create_task(ask(paced, **LONG))
        await is_at_work(paced)
        elsewhere = await ask(second, **LONG)
        assert (elsewhere.status, elsewhere.error["code"]) == (409, "idempotency_conflict")
        assert elsewhere.headers["retry-after"] == "1"
        assert "x-should-retry" not in elsewhere.headers
        answer, again = await first, await ask(second, **LONG)
        assert (again.body, again.is_again) == (answer.body, True)
    finally:
        await second.stop_gateway()
    assert await outcomes(paced) == ["completed"]


async def test_the_next_life_gives_up_what_a_dead_gateway_had_claimed(paced: Stack) -> None:
    await paced.gateway.claims.claim(claim_of(paced))
    await paced.stop_gateway()
    assert len(paced.control.keys.claims) == 1
    await paced.start_gateway()
    await paced.ready()
    await eventually(lambda: not paced.control.keys.claims)
    await eventually(lambda: paced.gateway.claims.unsent_count == 0)
    await paced.stop_gateway()
    await paced.start_gateway()
    assert paced.gateway.journal.recovered_claims == []


async def test_an_answer_whose_gateway_died_before_it_completed_is_given_to_nobody(
    paced: Stack,
) -> None:
    claim = claim_of(paced)
    await paced.gateway.claims.claim(claim)
    assert await paced.gateway.claims.store_response(claim, b"sealed")
    assert paced.control.keys.claim(msgspec.structs.replace(claim, event_id=OTHER)).verdict == (
        ClaimInProgress()
    )
    await paced.stop_gateway()
    await paced.start_gateway()
    await paced.ready()
    await eventually(lambda: not paced.control.keys.claims)


async def test_an_answer_whose_gateway_died_once_it_completed_is_everybodys(paced: Stack) -> None:
    paced.control.keys.is_deaf_to_endings = True
    first = await ask(paced)
    assert first.status == 200
    assert (await ask(paced)).status == 409
    await paced.stop_gateway()
    paced.control.keys.is_deaf_to_endings = False
    await paced.start_gateway()
    await paced.ready()
    await eventually(lambda: paced.gateway.claims.unsent_count == 0)
    again = await ask(paced)
    assert (again.body, again.is_again) == (first.body, True)
    assert await outcomes(paced) == ["completed"]


async def test_who_asks_just_after_the_end_is_told_all_of_it(
    paced: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the end of an answer and control's word on it there is neither to follow nor to give
    again: who asks then waits for a moment."""
    monkeypatch.setattr(execution, "TELL_SECONDS", 60.0)
    monkeypatch.setattr(claims, "AGAIN_SECONDS", 0.05)
    waits = note_waits(monkeypatch)
    paced.control.keys.is_deaf_to_endings = True
    first = await ask(paced, **STREAM)
    asking = asyncio.create_task(ask(paced, **STREAM))
    await eventually(waits.is_set)
    paced.control.keys.is_deaf_to_endings = False
    again = await asking
    assert (again.body, again.is_again) == (first.body, True)


async def test_what_is_kept_leaves_nothing_to_give_up(keyed: Stack) -> None:
    assert (await ask(keyed)).status == 200
    assert (await ask(keyed)).is_again
    assert (await ask(keyed, temperature=0.5)).status == 409
    await keyed.stop_gateway()
    await keyed.start_gateway()
    assert keyed.gateway.journal.recovered_claims == []
    assert len(keyed.control.keys.claims) == 1


OTHER = "0199a000-0000-7000-8000-000000000001"


def claim_of(stack: Stack) -> IdempotencyClaim:
    return IdempotencyClaim(
        event_id="0199a000-0000-7000-8000-000000000000",
        gateway_id=stack.gateway.journal.gateway_id,
        organization_id="org_a",
        key_digest="0" * 64,
        request_digest="1" * 64,
    )
