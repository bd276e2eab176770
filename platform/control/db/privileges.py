"""The application's database privileges: declared by the apps, granted by the owner, and verified
against PostgreSQL's catalog, which also shows privileges by membership, PUBLIC or a stray GRANT.

An AppConfig may name tables in `append_only: tuple[str, ...]` and in
`moved_by_functions: tuple[str, ...]` (changed only by functions of the owner).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from django.apps import AppConfig
from django.db.backends.utils import CursorWrapper
from psycopg import sql

FREELY = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE"})
READ = frozenset({"SELECT"})
ADD = frozenset({"SELECT", "INSERT"})
TABLES = """
/* The owner's tables and views; partitions are reached through their parent. */
SELECT relname, relkind IN ('v', 'm') FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')
  AND NOT relispartition AND relowner = quote_ident(current_user)::regrole
ORDER BY relname
"""
EVERYWHERE = sql.SQL("""
GRANT CONNECT, TEMPORARY ON DATABASE {database} TO {app};
REVOKE CREATE ON SCHEMA public FROM PUBLIC, {app};
GRANT USAGE ON SCHEMA public TO {app};
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {app};
REVOKE EXECUTE ON ALL ROUTINES IN SCHEMA public FROM PUBLIC;
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA public TO {app}
""")
ON_TABLE = sql.SQL("REVOKE ALL ON {table} FROM PUBLIC, {app}; GRANT {rights} ON {table} TO {app}")
TIMEOUT_SECONDS = {
    "statement_timeout": 30,
    "lock_timeout": 5,
    "idle_in_transaction_session_timeout": 30,
    "transaction_timeout": 60,  # PostgreSQL 17 and later
}
"""Timeouts that end an application session which blocks others; the owner has none."""
UNLIMITED_TRANSACTION = """
SELECT set_config(name, '0', true) FROM pg_settings WHERE name = 'transaction_timeout'
"""
"""Lifts the time limit of the open transaction. PostgreSQL has one from version 17 on; before, the
statement does nothing."""
UNSET = """
/* Which limits a new session like this one has not. */
SELECT current_database(), name FROM pg_settings WHERE name = ANY(%s) AND reset_val = '0'
"""
SET_TIMEOUT = sql.SQL("ALTER ROLE CURRENT_USER IN DATABASE {database} SET {name} = {value}")
TABLE_PRIVILEGES = """
/* What the application may do with each of the owner's tables, or with a column of it. */
SELECT c.relname, coalesce(root.relname, c.relname), c.relispartition, c.relkind IN ('v', 'm'),
       ARRAY(SELECT one FROM unnest(%(rights)s::text[]) one
             WHERE has_table_privilege(%(app)s, c.oid, one)
                OR (one = ANY('{SELECT,INSERT,UPDATE,REFERENCES}')
                    AND has_any_column_privilege(%(app)s, c.oid, one)))
FROM pg_class c LEFT JOIN pg_class root ON root.oid = pg_partition_root(c.oid)
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')
  AND c.relowner = quote_ident(current_user)::regrole
ORDER BY c.relname
"""
PRIVILEGES = sorted(FREELY | {"TRUNCATE", "REFERENCES", "TRIGGER"})


def declared_privileges(apps: Iterable[AppConfig]) -> dict[str, frozenset[str]]:
    """Return the privileges on each table that an app declares; all others are fully writable.

    A table that is in both lists allows INSERT.
    """
    apps = list(apps)
    read_only = {table: READ for app in apps for table in getattr(app, "moved_by_functions", ())}
    return read_only | {table: ADD for app in apps for table in getattr(app, "append_only", ())}


def grant(owner: CursorWrapper, *, app: str, declared: Mapping[str, frozenset[str]]) -> None:
    """Grant the role `app` its privileges in the owner's database, and revoke all others from it
    and from PUBLIC. The caller opens the transaction."""
    role = sql.Identifier(app)
    owner.execute("SELECT current_database()")
    database = sql.Identifier(*owner.fetchone())
    owner.execute(EVERYWHERE.format(app=role, database=database))
    owner.execute(TABLES)
    for name, is_view in owner.fetchall():
        rights = READ if is_view else declared.get(name, FREELY)
        listed = sql.SQL(", ").join(map(sql.SQL, sorted(rights)))
        table = sql.Identifier("public", name)
        owner.execute(ON_TABLE.format(table=table, rights=listed, app=role))


def set_timeouts(app: CursorWrapper) -> None:
    """Set the timeouts that the application's role lacks in this database, as that role itself.

    An operator's own values stay. Open sessions keep theirs.
    """
    app.execute(UNSET, [list(TIMEOUT_SECONDS)])
    for database, name in app.fetchall():
        value = sql.Literal(f"{TIMEOUT_SECONDS[name]}s")
        names = {"database": sql.Identifier(database), "name": sql.Identifier(name)}
        app.execute(SET_TIMEOUT.format(**names, value=value))


@dataclass(frozen=True, slots=True)
class ForbiddenPrivilege:
    """A forbidden state: a query for the names of the offending objects, and its message."""

    words: str
    query: str


FORBIDDEN = (
    ForbiddenPrivilege(
        "the application's role has powers over the whole server",
        """
        SELECT rolname FROM pg_roles WHERE rolname = %(app)s
          AND (rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls)
        """,
    ),
    ForbiddenPrivilege(
        "the application's role is a member of",
        """
        SELECT rolname FROM pg_roles WHERE rolname <> %(app)s
          AND rolname IN (current_user, 'pg_database_owner', 'pg_write_all_data', 'pg_maintain')
          AND pg_has_role(%(app)s, oid, 'MEMBER')
        """,
    ),
    ForbiddenPrivilege(
        "the application's role owns",
        """
        SELECT oid::regclass::text FROM pg_class
        WHERE relowner = quote_ident(%(app)s)::regrole AND relpersistence <> 't'
        UNION ALL
        SELECT oid::regprocedure::text FROM pg_proc WHERE proowner = quote_ident(%(app)s)::regrole
        UNION ALL
        SELECT nspname FROM pg_namespace WHERE nspowner = quote_ident(%(app)s)::regrole
        UNION ALL
        SELECT datname FROM pg_database
        WHERE datdba = quote_ident(%(app)s)::regrole AND datname = current_database()
        """,
    ),
    ForbiddenPrivilege(
        "the application's role may make objects in",
        """
        SELECT nspname FROM pg_namespace
        WHERE nspname !~ '^pg_(toast_)?temp_' AND has_schema_privilege(%(app)s, oid, 'CREATE')
        UNION ALL
        SELECT datname FROM pg_database
        WHERE datname = current_database() AND has_database_privilege(%(app)s, oid, 'CREATE')
        """,
    ),
    ForbiddenPrivilege(
        "without a fixed search_path, a SECURITY DEFINER function can be led astray",
        """
        SELECT oid::regprocedure::text FROM pg_proc
        WHERE prosecdef AND pronamespace = 'public'::regnamespace
          AND NOT EXISTS (SELECT FROM unnest(proconfig) one WHERE one LIKE 'search_path=%%')
        """,
    ),
)


def privilege_violations(
    owner: CursorWrapper, *, app: str, declared: Mapping[str, frozenset[str]]
) -> list[str]:
    """Return a sentence for each privilege that the role `app` has too much or too little."""
    return [*_forbidden(owner, app), *_wrong_privileges(owner, app, declared)]


def missing_timeouts(app: CursorWrapper) -> list[str]:
    """Return a sentence for each timeout that a new session of the application lacks."""
    app.execute(UNSET, [list(TIMEOUT_SECONDS)])
    return [f"the application's role has no {name}" for _, name in app.fetchall()]


def _forbidden(owner: CursorWrapper, app: str) -> Iterator[str]:
    for each in FORBIDDEN:
        owner.execute(each.query, {"app": app})
        if names := sorted(name for (name,) in owner.fetchall()):
            yield f"{each.words}: {', '.join(names)}"


def _wrong_privileges(
    owner: CursorWrapper, app: str, declared: Mapping[str, frozenset[str]]
) -> Iterator[str]:
    owner.execute(TABLE_PRIVILEGES, {"app": app, "rights": PRIVILEGES})
    tables = owner.fetchall()
    yield from (
        f"{table} is declared by an app and does not exist"
        for table in sorted(declared.keys() - {name for name, *_ in tables})
    )
    for name, root, is_partition, is_view, has in tables:
        wanted = READ if is_view else declared.get(root, FREELY)
        if not set(has) <= wanted or (not is_partition and set(has) != wanted):
            yield f"{name} gives the application {_words(has)}; wanted {_words(wanted)}"


def _words(rights: object) -> str:
    return ", ".join(sorted(rights)) or "nothing"  # type: ignore[call-overload]
