"""Granting the application its rights; whatever else it or the public had is taken away."""

from collections.abc import Mapping

from django.db.backends.utils import CursorWrapper
from psycopg import sql

from control.database.rights import FREELY, READ

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
LIMITS_SECONDS = {
    "statement_timeout": 30,
    "lock_timeout": 5,
    "idle_in_transaction_session_timeout": 30,
    "transaction_timeout": 60,  # PostgreSQL 17 and later
}
"""What stops a session of the application that holds others up; the owner's has no limits."""
UNSET = """
/* Which limits a new session like this one has not. */
SELECT current_database(), name FROM pg_settings WHERE name = ANY(%s) AND reset_val = '0'
"""
LIMIT = sql.SQL("ALTER ROLE CURRENT_USER IN DATABASE {database} SET {name} = {value}")


def grant(owner: CursorWrapper, *, app: str, declared: Mapping[str, frozenset[str]]) -> None:
    """Give the role `app` its rights in the owner's database; the caller makes it one atomic."""
    role = sql.Identifier(app)
    owner.execute("SELECT current_database()")
    database = sql.Identifier(*owner.fetchone())
    owner.execute(EVERYWHERE.format(app=role, database=database))
    owner.execute(TABLES)
    for name, is_view in owner.fetchall():
        rights = READ if is_view else declared.get(name, FREELY)
        words = sql.SQL(", ").join(map(sql.SQL, sorted(rights)))
        table = sql.Identifier("public", name)
        owner.execute(ON_TABLE.format(table=table, rights=words, app=role))


def limit_time(app: CursorWrapper) -> None:
    """Set the limits that the application's role lacks in this database, as that role itself.

    An operator's own values stay. Sessions that are open already keep what they have.
    """
    app.execute(UNSET, [list(LIMITS_SECONDS)])
    for database, name in app.fetchall():
        value = sql.Literal(f"{LIMITS_SECONDS[name]}s")
        names = {"database": sql.Identifier(database), "name": sql.Identifier(name)}
        app.execute(LIMIT.format(**names, value=value))
