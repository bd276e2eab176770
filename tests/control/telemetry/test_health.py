"""Whether control lives and may be sent requests, as probes of both listeners ask it."""

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from control import asgi
from control.static_files import STAMP
from control.telemetry import health as readiness
from control.telemetry.health import Checks, Health, health_middleware
from tests.fixtures.redis_server import RedisServer
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)
GOOD = {"database": True, "migrations": True, "static_files": True, "redis": True}


async def ask(application: Any, path: str) -> tuple[int, str, dict[str, str]]:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await application({"type": "http", "path": path, "headers": []}, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], sent[1]["body"].decode(), headers


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("health is answered before Django")


def with_checks(checks: Checks, *, is_public: bool) -> Any:
    async def check() -> Checks:
        return checks

    return health_middleware(nothing, Health(check), is_public=is_public)


@pytest.mark.parametrize("application", [asgi.application, asgi.internal_application])
async def test_who_lives_says_so_without_asking_anybody(application: Any) -> None:
    status, body, headers = await ask(application, "/healthz")
    assert (status, body) == (200, "ok\n")
    assert headers["x-request-id"].startswith("req_")
    assert headers["cache-control"] == "no-store"


async def test_the_public_listener_says_no_more_than_yes_or_no() -> None:
    away = GOOD | {"database": False}
    assert (await ask(with_checks(GOOD, is_public=True), "/readyz"))[:2] == (200, "ready\n")
    assert (await ask(with_checks(away, is_public=True), "/readyz"))[:2] == (503, "not ready\n")


async def test_the_internal_one_says_what_is_missing() -> None:
    behind = GOOD | {"migrations": False}
    status, body, _ = await ask(with_checks(behind, is_public=False), "/readyz")
    assert (status, json.loads(body)) == (503, behind)


async def test_without_redis_it_is_ready_and_says_so() -> None:
    away = GOOD | {"redis": False}
    assert (await ask(with_checks(away, is_public=True), "/readyz"))[:2] == (200, "ready\n")
    status, body, _ = await ask(with_checks(away, is_public=False), "/readyz")
    assert (status, json.loads(body)) == (200, away)


async def test_a_check_that_hangs_is_no_and_is_not_asked_twice() -> None:
    begun = 0

    async def hang() -> Checks:
        nonlocal begun
        begun += 1
        await asyncio.Event().wait()
        return {}

    health = Health(hang, answer_seconds=0.05)
    application = health_middleware(nothing, health, is_public=False)
    for _ in range(3):
        status, body, _ = await ask(application, "/readyz")
        assert (status, json.loads(body)) == (503, {"answered_in_time": False})
    assert begun == 1
    assert health._asking is not None
    health._asking.cancel()


async def test_a_check_that_fails_is_asked_again() -> None:
    answers = iter([{**GOOD, "database": False}, GOOD])

    async def check() -> Checks:
        return next(answers)

    application = health_middleware(nothing, Health(check), is_public=True)
    assert [(await ask(application, "/readyz"))[0] for _ in range(2)] == [503, 200]


def answering(wanted: Checks) -> Any:
    """Return a condition: each check is given up within seconds, however busy the machine is."""

    async def is_so() -> bool:
        return await readiness.checks() == wanted

    return is_so


async def test_the_database_with_its_migrations_and_redis_are_asked(
    settings: Any, tmp_path: Path
) -> None:
    await eventually(answering(GOOD | {"redis": False}), "the database's answer")
    server = RedisServer(tmp_path)
    server.start()
    try:
        settings.CONFIG = dataclasses.replace(settings.CONFIG, redis_url=server.url)
        await eventually(answering(GOOD), "the answers of the database and Redis")
    finally:
        server.stop()


async def test_a_migration_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        readiness, "required_migrations", lambda: frozenset({("audit", "9999_to_come")})
    )
    assert (await readiness.checks())["migrations"] is False


async def test_a_database_that_is_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "PORT", 1)
    assert await readiness.checks() == dict.fromkeys(GOOD, False) | {"static_files": True}


async def test_static_files_that_were_deleted_are_told(settings: Any, tmp_path: Path) -> None:
    settings.CONFIG = dataclasses.replace(settings.CONFIG, static_dir=tmp_path)
    found = await readiness.checks()
    assert (found["static_files"], readiness.is_ready(found)) == (False, False)
    (tmp_path / STAMP).touch()
    assert (await readiness.checks())["static_files"]
