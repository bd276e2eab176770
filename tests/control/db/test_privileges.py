"""What the application's role can do in the database, and how more than that is noticed."""

from collections.abc import Callable
from io import StringIO

import psycopg
import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import ProgrammingError, connection, connections, transaction
from psycopg import sql

from control.db.privileges import (
    ADD,
    READ,
    TIMEOUT_SECONDS,
    declared_privileges,
    grant,
    privilege_violations,
)
from control.management.commands import upgrade
from control.organizations.models import Project
from tests.fixtures.environment import APP, OWNER
from tests.fixtures.organizations import SeededOrganization

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
alone = pytest.mark.django_db(transaction=True, databases=["default", "owner"])
DECLARED = declared_privileges(apps.get_app_configs())
REFUSER = "pricing_refuse_published_book()"
"""A trigger function of the platform's."""
REFUSED = [
    "UPDATE audit_event SET action = 'nothing'",
    "DELETE FROM audit_event",
    "TRUNCATE audit_event",
    "TRUNCATE organizations_project CASCADE",
    "DROP TABLE audit_event",
    "ALTER TABLE audit_event DISABLE TRIGGER ALL",
    "ALTER TABLE audit_event ADD COLUMN more int",
    f"ALTER TABLE audit_event OWNER TO {APP.name}",
    f"CREATE TRIGGER mine AFTER INSERT ON audit_event EXECUTE FUNCTION {REFUSER}",
    f"CREATE OR REPLACE FUNCTION {REFUSER} RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE TABLE mine (id int)",
    "CREATE SCHEMA mine",
    f"SET ROLE {OWNER.name}",
    "SET session_replication_role = replica",
]


@pytest.mark.parametrize("statement", REFUSED)
def test_the_application_is_refused(org: SeededOrganization, statement: str) -> None:
    refused = pytest.raises(ProgrammingError, match=r"permission denied|must be owner|must be able")
    with refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


def test_the_application_may_have_temporary_tables() -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE mine (LIKE audit_event) ON COMMIT DROP")
        cursor.execute("TRUNCATE mine")


def test_what_is_no_fact_may_be_written_freely(org: SeededOrganization) -> None:
    assert Project.objects.filter(id=org.project.id).update(name="New") == 1
    assert Project.objects.filter(id=org.project.id).delete()[0] == 1


def test_no_session_of_the_application_holds_others_up_for_ever() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, setting FROM pg_settings WHERE name LIKE '%%timeout'")
        found = dict(cursor.fetchall())
    assert TIMEOUT_SECONDS.keys() - found.keys() <= {"transaction_timeout"}  # new in 17
    assert all(
        int(found[name]) == seconds * 1000
        for name, seconds in TIMEOUT_SECONDS.items()
        if name in found
    )


def prepare() -> str:
    output = StringIO()
    call_command("upgrade", stdout=output)
    return output.getvalue()


def rights() -> list[tuple[str, str]]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname, array(SELECT unnest(relacl)::text ORDER BY 1) FROM pg_class"
            " WHERE relnamespace = 'public'::regnamespace ORDER BY relname"
        )
        return cursor.fetchall()


@alone
def test_preparing_again_changes_nothing() -> None:
    before = rights()
    assert "has its rights and no more" in prepare()
    assert rights() == before


@alone
def test_a_database_of_another_version_is_refused(owner_connection: psycopg.Connection) -> None:
    before = rights()
    record = "INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, now())"
    owner_connection.execute(record, ["credit", "0002_authorization"])
    owner_connection.execute(record, ["tenants", "0004_operator_roles"])
    with pytest.raises(CommandError, match=r"doesn't have, such as credit\.0002_authorization\."):
        prepare()
    assert rights() == before


@alone
def test_an_upgrade_gives_up_a_table_that_stays_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    def migrate(*_: object, **__: object) -> None:
        with connections["owner"].cursor() as cursor:
            cursor.execute("ALTER TABLE audit_event ADD COLUMN more int")

    monkeypatch.setattr(upgrade, "call_command", migrate)
    monkeypatch.setattr(upgrade, "LOCK_SECONDS_MAX", 1)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM audit_event")
        with pytest.raises(CommandError, match="A table stayed locked"):
            prepare()
        connections["owner"].close()  # with its short lock timeout
        cursor.execute("SELECT * FROM audit_event")
        assert "more" not in {column.name for column in cursor.description}


@alone
def test_an_operators_own_limit_stays() -> None:
    limit = f"ALTER ROLE {APP.name} IN DATABASE {{}} SET statement_timeout = {{}}"
    database = sql.Identifier(connection.settings_dict["NAME"])
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql.SQL(limit).format(database, sql.Literal("7s")))
        prepare()
        with connection.cursor() as cursor:
            cursor.execute("SHOW statement_timeout")
            assert cursor.fetchone() == ("7s",)
    finally:
        with connection.cursor() as cursor:
            cursor.execute(sql.SQL(limit).format(database, sql.Literal("30s")))


@alone
def test_rights_that_somebody_added_are_taken_away(owner_connection: psycopg.Connection) -> None:
    owner_connection.execute(f"GRANT ALL ON audit_event TO PUBLIC, {APP.name}")
    owner_connection.execute("GRANT UPDATE (action) ON audit_event TO PUBLIC")
    prepare()
    with pytest.raises(ProgrammingError, match="permission denied"), connection.cursor() as cursor:
        cursor.execute(REFUSED[0])


@alone
def test_a_function_that_can_be_led_astray_is_an_error(owner_connection) -> None:
    make = "CREATE FUNCTION astray() RETURNS int LANGUAGE sql SECURITY DEFINER {} AS 'SELECT 1'"
    owner_connection.execute(make.format(""))
    try:
        with pytest.raises(CommandError, match=r"search_path, a SECURITY DEFINER .*astray\(\)"):
            prepare()
        owner_connection.execute("ALTER FUNCTION astray() SET search_path = public, pg_temp")
        prepare()
    finally:
        owner_connection.execute("DROP FUNCTION astray()")


@pytest.fixture
def found(superuser_connection: psycopg.Connection) -> Callable[..., list[str]]:
    """Do something as the superuser, undo it, and return what the proof says in between."""

    def found(statement: str, *, declared: dict[str, frozenset[str]] = DECLARED) -> list[str]:
        with superuser_connection.transaction(force_rollback=True):
            superuser_connection.execute(statement)
            superuser_connection.execute(f"SET LOCAL ROLE {OWNER.name}")
            return privilege_violations(
                superuser_connection.cursor(), app=APP.name, declared=declared
            )

    return found


@alone
@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (f"ALTER ROLE {APP.name} CREATEROLE", "powers over the whole server: {app}"),
        (f"GRANT {OWNER.name} TO {APP.name}", "is a member of: .*{owner}"),
        (f"GRANT pg_write_all_data TO {APP.name}", "is a member of: pg_write_all_data"),
        (f"ALTER TABLE organizations_project OWNER TO {APP.name}", "owns: .*organizations_project"),
        ("GRANT CREATE ON SCHEMA public TO PUBLIC", "may make objects in: public"),
        (f"GRANT UPDATE (action) ON audit_event TO {APP.name}", "audit_event gives .* UPDATE"),
        ("GRANT TRUNCATE ON api_keys_api_key TO PUBLIC", "api_keys_api_key gives .* TRUNCATE"),
        (f"REVOKE INSERT ON audit_event FROM {APP.name}", "audit_event .* SELECT; wanted INSERT"),
    ],
)
def test_whatever_is_amiss_is_named(found, statement: str, words: str) -> None:
    pattern = words.format(app=APP.name, owner=OWNER.name)
    with pytest.raises(AssertionError, match=pattern):
        assert found(statement) == []


@alone
def test_all_is_well_and_a_mistaken_declaration_is_named(found) -> None:
    assert found("SELECT 1") == []
    assert found("SELECT 1", declared=DECLARED | {"audit_entri": ADD}) == [
        "audit_entri is declared by an app and does not exist"
    ]


PARTITIONED = """
CREATE TABLE things (id int) PARTITION BY RANGE (id);
CREATE VIEW things_view AS SELECT * FROM things;
CREATE TABLE balances (nanos bigint)
"""
LATER = """
CREATE TABLE things_1 PARTITION OF things FOR VALUES FROM (0) TO (9);
INSERT INTO balances VALUES (5)
"""


@alone
def test_partitions_and_views_let_nobody_round_the_facts(superuser_connection) -> None:
    declared = DECLARED | {"things": ADD, "balances": READ}
    with superuser_connection.transaction(force_rollback=True):
        superuser_connection.execute(f"SET LOCAL ROLE {OWNER.name}")
        superuser_connection.execute(PARTITIONED)
        cursor = superuser_connection.cursor()
        grant(cursor, app=APP.name, declared=declared)
        superuser_connection.execute(LATER)
        assert privilege_violations(cursor, app=APP.name, declared=declared) == []
        superuser_connection.execute(f"SET LOCAL ROLE {APP.name}")
        superuser_connection.execute("INSERT INTO things VALUES (1)")
        assert superuser_connection.execute("SELECT nanos FROM balances").fetchall() == [(5,)]
        for statement in (
            "UPDATE things SET id = 2",
            "UPDATE things_view SET id = 2",
            "INSERT INTO things_1 VALUES (2)",
            "INSERT INTO balances VALUES (2)",
            "UPDATE balances SET nanos = 2",
        ):
            with (
                pytest.raises(psycopg.errors.InsufficientPrivilege),
                superuser_connection.transaction(),
            ):
                superuser_connection.execute(statement)


class Declaring:
    """An AppConfig, as far as rights go."""

    append_only = ("event", "draw")
    moved_by_functions = ("balance", "draw")


def test_rights_are_what_apps_declare() -> None:
    assert declared_privileges([Declaring(), object()]) == {  # type: ignore[list-item]
        "event": ADD,
        "draw": ADD,
        "balance": READ,
    }


BITS = {"DELETE": 8, "UPDATE": 16, "TRUNCATE": 32}
"""Of `pg_trigger.tgtype`."""
MOVED = {"ledger_account": {"UPDATE"}}
"""What the owner's functions may do to a fact: entries move the balances of accounts."""


@pytest.mark.parametrize("table", sorted(one for one in DECLARED if DECLARED[one] == ADD))
def test_what_is_declared_a_fact_stays_one_for_its_owner_too(table: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT bit_or(tgtype) FROM pg_trigger
            WHERE tgrelid = %s::regclass AND tgtype & 2 = 2 AND tgenabled <> 'D'""",
            [table],
        )
        (before,) = cursor.fetchone()
    refused = {verb for verb, bit in BITS.items() if (before or 0) & bit}
    assert refused >= BITS.keys() - MOVED.get(table, set())
