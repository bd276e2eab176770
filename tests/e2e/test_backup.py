"""A platform is backed up while it serves, and its backup is restored into an empty database."""

from pathlib import Path

import httpx
import psycopg
import pytest

from infra.local.database_roles import OWNER
from infra.local.processes import home_role, postgres_url
from tests.fixtures.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.full]
KEYS = "SELECT id, digest FROM api_keys_api_key ORDER BY id"


def test_a_restored_backup_has_the_keys_and_the_books(
    simulated_stack: Stack, tmp_path: Path
) -> None:
    stack = simulated_stack
    tenant = stack.tenant("restored@penstock.example")
    answer = httpx.post(
        f"{stack.api_base}/chat/completions",
        headers={"authorization": f"Bearer {tenant['api_key']}"},
        json={"model": stack.model, "messages": [{"role": "user", "content": "hi"}]},
    )
    assert answer.status_code == 200
    made = stack.penstock("backup", str(tmp_path / "backup"))
    assert made.returncode == 0, made.stderr
    empty = "restored"
    with psycopg.connect(stack.superuser_url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {empty} OWNER {OWNER}")
    owner = postgres_url(stack.config, home_role(stack.home, OWNER))
    addresses = {
        "DATABASE_OWNER_URL": _named(owner, empty),
        "DATABASE_URL": _named(stack.database_url, empty),
    }
    tried = stack.penstock("restore", str(tmp_path / "backup"), "--dry-run", **addresses)
    assert tried.returncode == 0, tried.stderr
    assert "it fits" in tried.stdout
    restored = stack.penstock("restore", str(tmp_path / "backup"), **addresses)
    assert restored.returncode == 0, restored.stdout + restored.stderr
    with (
        psycopg.connect(addresses["DATABASE_URL"]) as after,
        psycopg.connect(stack.database_url) as before,
    ):
        keys = after.execute(KEYS).fetchall()
        assert keys
        assert keys == before.execute(KEYS).fetchall()
    refused = stack.penstock("restore", str(tmp_path / "backup"), **addresses)
    assert refused.returncode == 1
    assert "the database restored is not empty" in refused.stderr


def _named(address: str, database: str) -> str:
    return f"{address.rpartition('/')[0]}/{database}"
