"""Django's cache in Redis, shared by all processes of control, so that rate limits count for the
whole platform. Without Redis each process counts by itself and no request waits."""

import json
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import structlog
from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.redis import RedisCache, RedisCacheClient
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

log = structlog.get_logger(__name__)

WAIT_SECONDS = 0.25
"""The time that Redis may take to respond."""
OPEN_SECONDS = 5.0
"""The time for which Redis is not used after it failed or took longer."""
LOCAL_ENTRIES_MAX = 100_000
"""Entries in a process's own memory, about 20 MB."""


class CircuitOpen:
    """The time until which this process does not use Redis."""

    until = 0.0


class JSONSerializer:
    """Serializes values for Redis. With Django's pickles, anyone who can write to Redis could run
    code here."""

    def dumps(self, obj: Any) -> bytes:
        """Return the stored bytes; Redis can increment integers among them."""
        return json.dumps(obj).encode()

    def loads(self, data: Any) -> Any:
        """Return the value."""
        return json.loads(data)


@cache
def _client(server: str) -> RedisCacheClient:
    """Return the one client of this process: Django creates a new cache for each request."""
    return RedisCacheClient(
        [server],
        serializer=JSONSerializer(),
        retry=Retry(NoBackoff(), 0),
        socket_timeout=WAIT_SECONDS,
        socket_connect_timeout=WAIT_SECONDS,
    )


def _with_fallback(name: str) -> Callable[..., Any]:
    """Return a method that uses Redis, or this process's memory while Redis is unavailable."""

    def method(self: "FallbackCache", *args: Any, **kwargs: Any) -> Any:
        if time.monotonic() >= CircuitOpen.until:
            try:
                return getattr(RedisCache, name)(self, *args, **kwargs)
            except (RedisError, OSError) as error:
                CircuitOpen.until = time.monotonic() + OPEN_SECONDS
                log.warning("cache_unavailable", error=type(error).__name__)
        return getattr(self.here, name)(*args, **kwargs)

    return method


class FallbackCache(RedisCache):
    """Redis, or this process's own memory while Redis is unavailable.

    Both drop expired entries, and full memory drops the least recently used, so neither grows
    without bound.
    """

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        super().__init__(server, params)
        self._server = server
        self.here = LocMemCache("shared", {**params, "OPTIONS": {"MAX_ENTRIES": LOCAL_ENTRIES_MAX}})

    @property
    def _cache(self) -> RedisCacheClient:
        return _client(self._server)

    add = _with_fallback("add")
    get = _with_fallback("get")
    set = _with_fallback("set")
    touch = _with_fallback("touch")
    delete = _with_fallback("delete")
    has_key = _with_fallback("has_key")
    incr = _with_fallback("incr")
    get_many = _with_fallback("get_many")
    set_many = _with_fallback("set_many")
    delete_many = _with_fallback("delete_many")

    def clear(self) -> None:
        """Clear this process's memory. Django would flush Redis, which also holds tasks: counts
        there expire by themselves."""
        self.here.clear()
