"""People who have an account, the moment it is, and a cache that knows nothing yet."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from allauth.account.models import EmailAddress
from django.core.cache import cache

from control.accounts.models import User
from control.cache import CircuitOpen
from tests.fixtures.redis_server import RedisServer, running_redis
from tests.fixtures.signing_in import NOW, PASSWORD


@pytest.fixture(autouse=True)
def nothing_is_counted() -> Iterator[None]:
    """Begin with no counts, and Redis away: its address in tests is nobody's."""
    CircuitOpen.until = 0.0
    cache.clear()
    yield
    CircuitOpen.until = 0.0


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time of tries; `at` may be moved on."""
    clock = SimpleNamespace(at=NOW)
    monkeypatch.setattr("control.accounts.adapter.time", SimpleNamespace(time=lambda: clock.at))
    return clock


def person(email: str) -> User:
    user = User.objects.create_user(email, PASSWORD)
    EmailAddress.objects.create(user=user, email=email, verified=True, primary=True)
    return user


@pytest.fixture
def ada(db: None) -> User:
    return person("ada@acme.example")


@pytest.fixture
def bob(db: None) -> User:
    return person("bob@acme.example")


@pytest.fixture
def redis(settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    """A real Redis that all processes share, and wait for, however busy the machine is."""
    monkeypatch.setattr("control.cache.WAIT_SECONDS", 60)
    with running_redis(tmp_path) as server:
        caches = {**settings.CACHES["default"], "LOCATION": server.url}
        settings.CACHES = {"default": caches}
        yield server
