"""A real Redis."""

from collections.abc import Iterator

import pytest

from serving import redis_client
from serving.limits import backend, redis_script
from tests.fixtures.redis_server import RedisServer, running_redis


@pytest.fixture(scope="package")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One for all tests here."""
    with running_redis(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture
def server(shared_server: RedisServer) -> RedisServer:
    """A Redis that knows nothing."""
    shared_server.flush()
    return shared_server


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gateways call and believe ten times as soon, and wait for Redis as long as it takes: a box
    with other work is no trouble of Redis's."""
    monkeypatch.setattr(backend, "WAIT_SECONDS", 60.0)
    monkeypatch.setattr(redis_script, "ANSWER_SECONDS", 60.0)
    monkeypatch.setattr(redis_client, "CONNECT_SECONDS", 60.0)
    monkeypatch.setattr(backend, "RENEW_SECONDS", backend.RENEW_SECONDS / 10)
    monkeypatch.setattr(backend, "YOUNG_SECONDS", backend.YOUNG_SECONDS / 10)
