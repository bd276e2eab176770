"""The versions of this process's Python, PostgreSQL and Redis, compared with the required ones.

A server that does not answer is not judged: services start without it and wait for it.
"""

import sys
from collections.abc import Iterator

import psycopg
import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, RedisError, ResponseError
from redis.retry import Retry

from control.db.connection import server_version
from serving.contract.required_versions import (
    unsupported_postgresql,
    unsupported_python,
    unsupported_redis,
)

ANSWER_SECONDS = 2
DATABASE_VARIABLES = {"default": "DATABASE_URL", "owner": "DATABASE_OWNER_URL"}


def unsupported_versions(alias: str = "default") -> Iterator[tuple[str, str]]:
    """Yield the name and the rest of a sentence for each version that is too old."""
    found = {
        "Python": unsupported_python(sys.version_info[:2]),
        DATABASE_VARIABLES[alias]: _postgresql(alias),
        "REDIS_URL": _redis(),
    }
    yield from ((name, words) for name, words in found.items() if words is not None)


def exit_if_unsupported(command: str) -> None:
    """End the process with one sentence if a version is too old."""
    for name, words in unsupported_versions():
        sys.exit(f"{command}: {name} {words}")


def _postgresql(alias: str) -> str | None:
    try:
        return unsupported_postgresql(server_version(alias, connect_timeout=ANSWER_SECONDS))
    except psycopg.OperationalError:
        return None


def _redis() -> str | None:
    with redis.Redis.from_url(
        settings.CONFIG.redis_url,
        socket_timeout=ANSWER_SECONDS,
        socket_connect_timeout=ANSWER_SECONDS,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
    ) as client:
        try:
            return unsupported_redis(client.execute_command("HELLO"))
        except NoPermissionError:
            return None
        except ResponseError:
            return unsupported_redis(None)
        except (RedisError, OSError):
            return None
