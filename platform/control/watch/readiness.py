"""What control needs to answer requests: the database with every migration. Redis is asked too, and
told: without it each process counts tries and calls by itself, and no page fails (decision 0036).

Each is asked on a connection of its own, so that the answer is the server's and not the pool's.
"""

import asyncio
from functools import cache

import psycopg
from django.conf import settings
from django.db.migrations.loader import MigrationLoader
from redis.asyncio import Redis
from redis.exceptions import RedisError

from control.database.connection import connect_apart

Checks = dict[str, bool]
CONNECT_SECONDS = 2
NEEDED = ("database", "migrations")


async def checks() -> Checks:
    """Return what holds, by name."""
    applied, redis = await asyncio.gather(_applied(), _redis_answers())
    has_migrations = applied is not None and (await asyncio.to_thread(wanted)) <= applied
    return {"database": applied is not None, "migrations": has_migrations, "redis": redis}


def is_ready(found: Checks) -> bool:
    """Tell whether requests may be sent here."""
    return all(found.get(name, False) for name in NEEDED)


@cache
def wanted() -> frozenset[tuple[str, str]]:
    """Return the migrations that this software brings."""
    return frozenset(MigrationLoader(None, replace_migrations=False).disk_migrations)


async def _applied() -> set[tuple[str, str]] | None:
    """Return the migrations that the database has; None where it does not answer."""
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
