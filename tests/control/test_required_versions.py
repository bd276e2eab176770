"""A server that is too old is refused in one sentence, before anything is changed or served."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.core.management import CommandError, call_command
from django.db import connections

from control.required_versions import unsupported_versions
from serving.redis_client import unsupported_version
from tests.fixtures import catalog
from tests.fixtures.environment import free_port
from tests.fixtures.gateway import CREDENTIAL
from tests.fixtures.old_servers import OldPostgres, OldRedis, old_server
from tests.fixtures.redis_server import running_redis

pytestmark = pytest.mark.integration
OLD_POSTGRES = (
    "names PostgreSQL 14.11; Penstock needs 15 or later: upgrade that server, or name another"
)
OLD_REDIS = (
    "names Redis before 6.0; Penstock needs Redis 6.2 or later, or Valkey: upgrade that server, or"
    " name another"
)
each_service = pytest.mark.parametrize(
    ("module", "command"),
    [("control.server", "penstock run control"), ("control.worker", "penstock run worker")],
)


@pytest.fixture
def postgres_port() -> Iterator[int]:
    with old_server(OldPostgres) as port:
        yield port


@pytest.fixture
def redis_url() -> Iterator[str]:
    with old_server(OldRedis) as port:
        yield f"redis://127.0.0.1:{port}/0"


def last_words(module: str, **environment: str) -> str:
    """Return what a process says that ends at its start."""
    ended = subprocess.run(
        [sys.executable, "-m", module],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    return ended.stderr


def test_an_upgrade_is_refused(postgres_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("HOST", "127.0.0.1"), ("PORT", str(postgres_port))):
        monkeypatch.setitem(connections["owner"].settings_dict, name, value)
    with pytest.raises(CommandError) as refused:
        call_command("upgrade")
    assert str(refused.value) == f"DATABASE_OWNER_URL {OLD_POSTGRES}"


@pytest.mark.django_db
def test_an_old_redis_is_found_beside_a_recent_database(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(django_settings.CONFIG, redis_url=redis_url)
    monkeypatch.setattr(django_settings, "CONFIG", config)
    assert list(unsupported_versions()) == [("REDIS_URL", OLD_REDIS)]


@pytest.mark.django_db
def test_a_recent_server_is_accepted_and_one_that_is_away_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_redis(tmp_path) as server:
        config = replace(django_settings.CONFIG, redis_url=server.url)
        monkeypatch.setattr(django_settings, "CONFIG", config)
        assert list(unsupported_versions()) == []
        assert unsupported_version(server.url) is None
    assert list(unsupported_versions()) == []
    assert unsupported_version(server.url) is None


@pytest.mark.full
@each_service
def test_a_service_ends_with_one_sentence(
    module: str, command: str, postgres_port: int, redis_url: str
) -> None:
    url = f"postgresql://app:x@127.0.0.1:{postgres_port}/penstock"
    assert last_words(module, DATABASE_URL=url) == f"{command}: DATABASE_URL {OLD_POSTGRES}\n"
    nowhere = f"postgresql://app:x@127.0.0.1:{free_port()}/penstock"
    said = last_words(module, DATABASE_URL=nowhere, REDIS_URL=redis_url)
    assert said == f"{command}: REDIS_URL {OLD_REDIS}\n"


@pytest.mark.full
def test_a_gateway_ends_with_one_sentence(redis_url: str, tmp_path: Path) -> None:
    said = last_words(
        "serving.gateway",
        REDIS_URL=redis_url,
        PENSTOCK_GATEWAY_DATA_DIR=str(tmp_path),
        PENSTOCK_INTERNAL_CREDENTIAL=CREDENTIAL,
        PENSTOCK_KEY_PEPPER=catalog.PEPPER,
    )
    assert said == f"gateway: REDIS_URL {OLD_REDIS}\n"
