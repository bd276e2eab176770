"""A client of Redis as gateways use it: nothing is tried again by itself, and whoever asks says how
long it waits."""

import redis
import redis.retry
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from serving.contract.required_versions import unsupported_redis

CONNECT_SECONDS = 1.0
AWAY = (RedisError, OSError, TimeoutError)
"""The errors that a call raises while Redis does not answer, or not as it should."""


def open_redis(url: str, *, answer_seconds: float | None = None) -> Redis:
    """Return a client that connects when it is first asked. Without `answer_seconds` its caller
    bounds each call, as who listens for news must."""
    return Redis.from_url(
        url,
        retry=Retry(NoBackoff(), 0),
        socket_connect_timeout=CONNECT_SECONDS,
        socket_timeout=answer_seconds,
        protocol=2,
    )


def unsupported_version(url: str) -> str | None:
    """Return the rest of a sentence that begins with `REDIS_URL` if the server is too old; None if
    it is not, or does not answer or say: a gateway starts without Redis."""
    with redis.Redis.from_url(
        url,
        retry=redis.retry.Retry(NoBackoff(), 0),
        socket_connect_timeout=CONNECT_SECONDS,
        socket_timeout=CONNECT_SECONDS,
        protocol=2,
    ) as client:
        try:
            return unsupported_redis(client.execute_command("HELLO"))
        except NoPermissionError:
            return None
        except ResponseError:
            return unsupported_redis(None)
        except AWAY:
            return None
