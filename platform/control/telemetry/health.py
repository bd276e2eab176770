"""`/healthz` and `/readyz` of both listeners, served outside Django, so that neither a slow page
nor the probe's Host header matters.

Control is ready if the database has every migration and the collected static files are there. Redis
is reported but not required: without it each process counts attempts and calls by itself (decision
0024). Each is checked on a connection of its own, so that the result is the server's and not the
pool's.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any

import psycopg
from django.conf import settings
from django.db.migrations.loader import MigrationLoader
from redis.asyncio import Redis
from redis.exceptions import RedisError

from control.db.connection import connect_apart
from control.db.models import new_id
from control.request_context import REQUEST_ID
from control.static_files import is_collected

Checks = dict[str, bool]
CONNECT_SECONDS = 2
REQUIRED = ("database", "migrations", "static_files")
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]
Check = Callable[[], Awaitable[Checks]]
ANSWER_SECONDS = 2.0
"""A check that takes longer has failed."""
NOT_KNOWN: Checks = {}


async def checks() -> Checks:
    """Return the result of each check, by name."""
    applied, redis = await asyncio.gather(_applied(), _redis_answers())
    has_migrations = (
        applied is not None and (await asyncio.to_thread(required_migrations)) <= applied
    )
    return {
        "database": applied is not None,
        "migrations": has_migrations,
        "static_files": await asyncio.to_thread(is_collected, settings.CONFIG.static_dir),
        "redis": redis,
    }


def is_ready(found: Checks) -> bool:
    """Return whether requests may be sent here."""
    return all(found.get(name, False) for name in REQUIRED)


@cache
def required_migrations() -> frozenset[tuple[str, str]]:
    """Return the migrations of this version of the code."""
    return frozenset(MigrationLoader(None, replace_migrations=False).disk_migrations)


async def _applied() -> set[tuple[str, str]] | None:
    """Return the migrations that the database has; None if it does not respond."""
    try:
        connection = await connect_apart(connect_timeout=CONNECT_SECONDS)
        try:
            rows = await connection.execute("SELECT app, name FROM django_migrations")
            return {(app, name) for app, name in await rows.fetchall()}
        finally:
            await connection.close()
    except psycopg.Error:
        return None


async def _redis_answers() -> bool:
    url = settings.CONFIG.redis_url
    try:
        async with Redis.from_url(url, socket_timeout=1, socket_connect_timeout=1) as redis:
            return bool(await redis.ping())
    except (OSError, RedisError):
        return False


class Health:
    """Runs one check at a time: one that hangs is left to end by itself, and meanwhile every probe
    is unready."""

    def __init__(self, check: Check, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._check = check
        self._answer_seconds = answer_seconds
        self._asking: asyncio.Task[Checks] | None = None

    async def ask(self) -> Checks:
        """Return the result of each check; nothing if they take too long."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._checked())
        await asyncio.wait({self._asking}, timeout=self._answer_seconds)
        return self._asking.result() if self._asking.done() else NOT_KNOWN

    async def _checked(self) -> Checks:
        return await self._check()


def health_middleware(application: Application, health: Health, *, is_public: bool) -> Application:
    """Return the application with both endpoints. A public `/readyz` says only ready or not."""

    async def respond(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        path = scope.get("path")
        if path == "/healthz":
            await respond_plain(send, 200, b"ok\n")
        elif path == "/readyz":
            checks = await health.ask()
            status = 200 if is_ready(checks) else 503
            await respond_plain(send, status, _words(checks, status, is_public))
        else:
            await application(scope, receive, send)

    return respond


async def respond_plain(send: Send, status: int, body: bytes) -> None:
    """Send a plain-text response that is not cached."""
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (REQUEST_ID.encode(), new_id("req").encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _words(checks: Checks, status: int, is_public: bool) -> bytes:
    if is_public:
        return b"ready\n" if status == 200 else b"not ready\n"
    return json.dumps(checks or {"answered_in_time": False}).encode() + b"\n"
