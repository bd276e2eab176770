"""Who and what is refused at the door, and in which words."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from openai import NotFoundError

from tests.fixtures import catalog
from tests.fixtures.gateway import MESSAGES, Stack
from tests.fixtures.waiting import eventually

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"model": "demo", "messages": MESSAGES, "max_tokens": 2}


async def refusal(stack: Stack, body: Any, headers: dict[str, str] | None = None) -> tuple:
    async with stack.post(CHAT, body, headers) as reply:
        error = (await reply.json())["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert "x-request-id" in reply.headers
        return reply.status, error["code"], error["param"]


async def publish(stack: Stack, tenant: catalog.Tenant) -> None:
    catalog.publish(stack.control, tenant)
    version = stack.control.feed.version
    await eventually(lambda: stack.gateway.directory.mirror.version == version)


async def test_every_bad_key_gets_one_and_the_same_answer(stack: Stack) -> None:
    past = datetime(2026, 1, 1, tzinfo=UTC)
    expired = catalog.tenant("expired", expires_at=past)
    elsewhere = catalog.tenant("elsewhere", networks=("10.0.0.0/8", "not a network"))
    await publish(stack, expired)
    await publish(stack, elsewhere)
    secrets = ["", "sk-x", "' OR '1'='1", catalog.tenant("unknown").secret]
    secrets += [stack.tenant.secret[:-1] + "x", expired.secret, elsewhere.secret]
    bodies = set()
    for secret in secrets:
        async with stack.post(CHAT, ASK, {"authorization": f"Bearer {secret}"}) as reply:
            assert reply.status == 401
            bodies.add(await reply.text())
    assert len(bodies) == 1


async def test_a_revoked_key_is_refused(stack: Stack) -> None:
    async with stack.post(CHAT, ASK) as reply:
        assert reply.status == 200
    stack.control.feed.publish("api_key", "key_a", None)
    await eventually(lambda: stack.gateway.directory.principal(stack.tenant.key.digest) is None)
    assert (await refusal(stack, ASK))[0] == 401


async def test_a_suspended_organization_is_told_so_and_served_again(
    stack: Stack,
) -> None:
    digest, directory = stack.tenant.key.digest, stack.gateway.directory
    suspended = catalog.OrganizationRecord("org_a", "suspended", (), "salt_a")
    stack.control.feed.publish("organization", "org_a", suspended)
    await eventually(lambda: directory.principal(digest).is_suspended)
    assert (await refusal(stack, ASK))[:2] == (403, "organization_suspended")
    wrong = {"authorization": f"Bearer {catalog.tenant('unknown').secret}"}
    assert (await refusal(stack, ASK, wrong))[0] == 401
    stack.control.feed.publish("organization", "org_a", stack.tenant.organization)
    await eventually(lambda: not directory.principal(digest).is_suspended)
    async with stack.post(CHAT, ASK) as reply:
        assert reply.status == 200


async def test_a_key_without_the_scope_is_403(stack: Stack) -> None:
    manager = catalog.tenant("m", scopes=("manage",))
    await publish(stack, manager)
    headers = {"authorization": f"Bearer {manager.secret}"}
    assert (await refusal(stack, ASK, headers))[0] == 403


async def test_a_model_of_others_looks_exactly_like_one_that_is_not(stack: Stack) -> None:
    private = catalog.model("var_private", "private", organization_ids=("org_b",))
    stack.control.feed.publish("model", "var_private", private)
    await eventually(lambda: stack.gateway.directory.mirror.version == stack.control.feed.version)
    errors = []
    for name in ("private", "nothing"):
        with pytest.raises(NotFoundError) as caught:
            await stack.client().models.retrieve(name)
        errors.append(json.dumps(caught.value.body).replace(name, "NAME"))
        answer = await refusal(stack, ASK | {"model": name})
        assert answer == (404, "model_not_found", "model")
    assert errors[0] == errors[1]
    listed = [model.id async for model in stack.client().models.list()]
    assert listed == ["demo", "demo:bf16"]


async def test_a_key_sees_and_uses_only_its_models(stack: Stack) -> None:
    narrow = catalog.tenant("n", models=("other",))
    await publish(stack, narrow)
    assert [m.id async for m in stack.client(narrow.secret).models.list()] == []
    headers = {"authorization": f"Bearer {narrow.secret}"}
    assert (await refusal(stack, ASK, headers))[0] == 404


async def test_an_alias_names_the_same_model_and_is_answered_under_its_own_name(
    stack: Stack,
) -> None:
    answer = await stack.client().chat.completions.create(
        model="demo:bf16", messages=MESSAGES, max_tokens=2
    )
    assert answer.model == "demo:bf16"


async def test_too_many_headers_are_431_and_too_large_bodies_413(stack: Stack) -> None:
    many = {f"x-{number}": "1" for number in range(70)}
    assert await refusal(stack, ASK, many) == (431, "headers_too_large", None)
    assert (
        await refusal(stack, ASK, {"x-long": "a" * 7_000, "x-b": "b" * 7_000, "x-c": "c" * 7_000})
    )[0] == 431
    body = b" " * (4 * 2**20 + 1)
    assert await refusal(stack, body) == (413, "request_too_large", None)


async def test_unknown_addresses_and_methods(stack: Stack) -> None:
    async with stack.post("/v1/moderations", {}) as reply:
        assert reply.status == 404
    async with stack.post("/v1/models", {}) as reply:
        assert reply.status == 405
        assert reply.headers["allow"] == "GET, HEAD"


async def test_models_that_do_not_run_are_not_offered(stack: Stack) -> None:
    control = stack.control
    control.feed.publish("model", "var_idle", catalog.model("var_idle", "idle"))
    control.feed.publish("model", "var_own", catalog.model("var_own", "own"))
    own = catalog.deployment("var_own", dedicated_to="org_b")
    control.feed.publish("deployment", own.deployment_id, own)
    await eventually(lambda: stack.gateway.directory.mirror.version == control.feed.version)
    assert [m.id async for m in stack.client().models.list()] == ["demo", "demo:bf16"]
    stopped = catalog.deployment(replicas_min=0)
    control.feed.publish("deployment", "dep_var_demo", stopped)
    control.fleet.publish("replica", "rep_1", None)
    pool = stack.gateway.directory.pools["dep_var_demo"]
    await eventually(lambda: not pool.has_ready_replica)
    await eventually(lambda: stack.gateway.directory.mirror.version == control.feed.version)
    assert [m.id async for m in stack.client().models.list()] == []


async def test_engine_routes_are_not_open(stack: Stack) -> None:
    for path in ("/tokenize", "/pause", "/metrics", "/version", "/invocations", "/ping"):
        async with stack.post(path, {}) as reply:
            assert reply.status == 404


async def test_a_full_disk_refuses_new_work_until_there_is_room_again(stack: Stack) -> None:
    journal = stack.gateway.journal
    async with stack.post(CHAT, ASK) as reply:
        assert reply.status == 200
    pages = await journal._execute(lambda db: db.execute("PRAGMA page_count").fetchone()[0])
    await journal._execute(lambda db: db.execute(f"PRAGMA max_page_count = {pages}").fetchone())
    stack.control.billing.is_down = True
    for _ in range(60):
        async with stack.post(CHAT, ASK) as reply:
            if reply.status == 503:
                assert (await reply.json())["error"]["code"] == "usage_unavailable"
                break
    assert not journal.healthy
    journal._file.connection.execute("PRAGMA max_page_count = 100000").fetchone()
    stack.control.billing.is_down = False
    await eventually(lambda: journal.healthy)
    async with stack.post(CHAT, ASK) as reply:
        assert reply.status == 200
