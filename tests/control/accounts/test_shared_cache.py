"""What is counted for all processes, and what each does while Redis is away."""

import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.cache.backends.redis import RedisCache

from control.cache import CircuitOpen, FallbackCache
from tests.fixtures.redis_server import RedisServer, running_redis

pytestmark = pytest.mark.integration
PARAMETERS = {"KEY_PREFIX": "test"}


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(Path(tmp_path_factory.mktemp("redis"))) as server:
        yield server


@pytest.fixture
def cache(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> FallbackCache:
    """A cache that waits for Redis, however busy the machine is."""
    monkeypatch.setattr("control.cache.WAIT_SECONDS", 60)
    redis.flush()
    shared = FallbackCache(redis.url, PARAMETERS)
    shared.clear()
    return shared


def forget_own(cache: FallbackCache) -> None:
    """Do as another process would, which remembers nothing of this one's."""
    cache.here.clear()


def test_all_processes_count_together(cache: FallbackCache, redis: RedisServer) -> None:
    cache.add("tries", 0, 60)
    assert cache.incr("tries") == 1
    forget_own(cache)
    assert FallbackCache(redis.url, PARAMETERS).incr("tries") == 2


def test_without_redis_each_counts_by_itself(cache: FallbackCache, redis: RedisServer) -> None:
    redis.stop()
    try:
        assert cache.add("alone", 0, 60)
        assert cache.incr("alone") == 1
        assert cache.get("alone") == 1
    finally:
        redis.start()
    CircuitOpen.until = 0.0
    assert cache.get("alone") is None


def test_a_redis_that_hangs_is_waited_for_once(
    cache: FallbackCache, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.set("tries", 1, 60)
    monkeypatch.setattr("control.cache.WAIT_SECONDS", 0.25)
    monkeypatch.setattr("control.cache.OPEN_SECONDS", 600)
    hasty = FallbackCache(f"{redis.url}?client_name=hasty", PARAMETERS)
    asked: list[str] = []
    get = RedisCache.get

    def counted(self: RedisCache, key: str, *more: object) -> object:
        asked.append(key)
        return get(self, key, *more)

    redis.freeze()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(RedisCache, "get", counted)
            for _ in range(50):
                hasty.get("tries")
    finally:
        redis.thaw()
    assert asked == ["tries"]
    CircuitOpen.until = 0.0
    assert cache.get("tries") == 1


def test_forgetting_leaves_the_tasks_in_redis_alone(
    cache: FallbackCache, redis: RedisServer
) -> None:
    redis.client.set("celery", "a queue")
    cache.clear()
    assert redis.client.get("celery") == b"a queue"


def test_its_own_memory_does_not_grow_without_bound(
    cache: FallbackCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CircuitOpen, "until", time.monotonic() + 60)
    monkeypatch.setattr(cache.here, "_max_entries", 30)
    for number in range(100):
        cache.set(f"n{number}", number, 60)
    kept = [number for number in range(100) if cache.get(f"n{number}") is not None]
    assert len(kept) <= 30
    assert kept[-1] == 99


@pytest.mark.parametrize("value", [0, 7, True, [1.5, 2.5], "text", None, {"a": 1}])
def test_what_is_kept_comes_back(cache: FallbackCache, value: object) -> None:
    cache.set("value", value, 60)
    found = cache.get("value", "nothing")
    assert (found, type(found)) == (value, type(value))


def test_what_somebody_else_wrote_runs_nothing(cache: FallbackCache, redis: RedisServer) -> None:
    redis.client.set("test:1:value", pickle.dumps(print))
    with pytest.raises(ValueError, match=r"decode|JSON|Expecting|utf"):
        cache.get("value")


def test_every_call_has_its_twin(cache: FallbackCache) -> None:
    for shared in (True, False):
        CircuitOpen.until = 0.0 if shared else time.monotonic() + 60
        cache.set_many({"a": 1, "b": 2}, 60)
        assert cache.get_many(["a", "b"]) == {"a": 1, "b": 2}
        assert cache.touch("a", 60)
        assert cache.has_key("a")
        assert cache.delete("a")
        cache.delete_many(["b"])
        assert not cache.has_key("b")
        with pytest.raises(ValueError, match="not found"):
            cache.incr("a")
