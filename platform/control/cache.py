"""Django's cache in Redis, which all processes of control share: what limits count is true for the
platform, not for a process. Without Redis each process counts by itself and nobody waits."""

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
"""How long Redis may take."""
OPEN_SECONDS = 5.0
"""How long it is left alone once it took longer."""
LOCAL_ENTRIES_MAX = 100_000
"""Entries that a process keeps by itself, some 20 MB."""


class CircuitOpen:
    """Until when Redis of this process is taken to be away."""

    until = 0.0


class JSONSerializer:
    """How values are kept in Redis: Django's pickles would let who writes there run code here."""

    def dumps(self, obj: Any) -> bytes:
        """Return what is kept; Redis counts on whole numbers itself."""
        return json.dumps(obj).encode()

    def loads(self, data: Any) -> Any:
        """Return the value."""
        return json.loads(data)


@cache
def _client(server: str) -> RedisCacheClient:
    """Return the one client of this process: Django makes a cache anew for each request."""
    return RedisCacheClient(
        [server],
        serializer=JSONSerializer(),
        retry=Retry(NoBackoff(), 0),
        socket_timeout=WAIT_SECONDS,
        socket_connect_timeout=WAIT_SECONDS,
    )


def _either(name: str) -> Callable[..., Any]:
    """Return a method that asks Redis, or this process's memory while Redis is away."""

    def method(self: "FallbackCache", *args: Any, **kwargs: Any) -> Any:
        if time.monotonic() >= CircuitOpen.until:
            try:
                return getattr(RedisCache, name)(self, *args, **kwargs)
            except (RedisError, OSError) as error:
                CircuitOpen.until = time.monotonic() + OPEN_SECONDS
                log.warning("shared_cache_away", error=type(error).__name__)
        return getattr(self.here, name)(*args, **kwargs)

    return method


class FallbackCache(RedisCache):
    """Redis, or this process's own memory while Redis is away. Both forget what its time is over,
    and memory the least recently used when it is full, so neither grows without bound."""

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        super().__init__(server, params)
        self._server = server
        self.here = LocMemCache("shared", {**params, "OPTIONS": {"MAX_ENTRIES": LOCAL_ENTRIES_MAX}})

    @property
    def _cache(self) -> RedisCacheClient:
        return _client(self._server)

    add = _either("add")
    get = _either("get")
    set = _either("set")
    touch = _either("touch")
    delete = _either("delete")
    has_key = _either("has_key")
    incr = _either("incr")
    get_many = _either("get_many")
    set_many = _either("set_many")
    delete_many = _either("delete_many")

    def clear(self) -> None:
        """Forget what this process keeps. Django would flush Redis, which holds tasks too: what is
        counted there ends with its time."""
        self.here.clear()
