"""A client of Redis as gateways use it: nothing is tried again by itself, and whoever asks says how
long it waits."""

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

CONNECT_SECONDS = 1.0
AWAY = (RedisError, OSError, TimeoutError)
"""What a call raises while Redis does not answer, or not as it should."""


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
