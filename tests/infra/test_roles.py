"""The two roles of a server of our own, and a data folder from before there were two."""

import os
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from infra.local.environment import RUN_VARIABLE
from infra.local.manage import MANAGE
from infra.local.roles import Role, hand_over, make_role
from tests.fixtures.environment import APP, OWNER, url_as

pytestmark = pytest.mark.integration

OBJECTS = """
CREATE TABLE plain (id bigint GENERATED ALWAYS AS IDENTITY);
CREATE TABLE parted (id int) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (9);
CREATE VIEW seen AS SELECT * FROM plain;
CREATE SEQUENCE alone;
CREATE FUNCTION answer(wanted int) RETURNS int LANGUAGE sql AS 'SELECT 42'
"""
OWNERS = """
SELECT DISTINCT relowner::regrole::text FROM pg_class WHERE relnamespace = 'public'::regnamespace
UNION SELECT proowner::regrole::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace
UNION SELECT datdba::regrole::text FROM pg_database WHERE datname = current_database()
"""


@pytest.fixture
def scratch_url(postgres_url: str) -> Iterator[str]:
    """An empty database of the superuser's, as its superuser."""
    name = f"scratch_{os.getpid()}"
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        yield urlsplit(postgres_url)._replace(path=f"/{name}").geturl()
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_all_that_stands_in_a_database_is_handed_over_once(scratch_url: str) -> None:
    with psycopg.connect(scratch_url) as connection:
        connection.execute(OBJECTS)
        assert hand_over(connection, owner=OWNER.name) == 6
        assert connection.execute(OWNERS).fetchall() == [(OWNER.name,)]
        assert hand_over(connection, owner=OWNER.name) == 0


def test_a_role_is_made_once_and_loses_powers_it_was_given(scratch_url: str) -> None:
    role = Role(f"penstock_tests_{os.getpid()}", 'it\'s a \\ "password"')
    powers = "SELECT rolcanlogin, rolsuper FROM pg_roles WHERE rolname = %s"
    with (
        psycopg.connect(scratch_url) as connection,
        connection.transaction(force_rollback=True),
    ):
        make_role(connection, role)
        connection.execute(f"ALTER ROLE {role.name} SUPERUSER")
        make_role(connection, role)
        assert connection.execute(powers, [role.name]).fetchone() == (True, False)


def prepare_database(url: str, owner_url: str = "") -> str:
    """Run the command as `penstock up` does; return what it says."""
    urls = {"DATABASE_URL": url, "DATABASE_OWNER_URL": owner_url}
    result = subprocess.run(
        [sys.executable, MANAGE, "prepare_database"],
        env=os.environ | urls | {"DJANGO_SETTINGS_MODULE": "control.settings", RUN_VARIABLE: ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.e2e
def test_a_database_of_one_role_becomes_one_of_two(scratch_url: str) -> None:
    """As data folders of earlier versions do: everything in them is the superuser's."""
    assert "One role for everything" in prepare_database(scratch_url)
    with psycopg.connect(scratch_url) as connection:
        connection.execute(
            "INSERT INTO audit_entry (organization_id, actor_kind, actor_id, actor_name, action,"
            " target_kind, target_id, details, created_at, request_id)"
            " VALUES ('', 'system', '', 'tests', 'kept', '', '', '{}', now(), '')"
        )
        hand_over(connection, owner=OWNER.name)
    app_url, owner_url = (url_as(role, scratch_url) for role in (APP, OWNER))
    for _ in range(2):
        assert f"{APP.name} has its rights and no more" in prepare_database(app_url, owner_url)
    with psycopg.connect(app_url) as connection:
        kept = connection.execute("SELECT action FROM audit_entry").fetchall()
        assert kept == [("kept",)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("DELETE FROM audit_entry")
