"""The two database roles of a server that we run ourselves, made by its superuser.

The owner has the tables and migrates; the application has rights in them and nothing of its own
(docs/decisions/0021-database-roles.md). Its rights are no matter of this module:
`penstock upgrade` grants them, as the owner.
"""

from dataclasses import dataclass

import psycopg
from psycopg import sql

OWNER = "penstock_owner"
APP = "penstock_app"
_LOCK_ID = 0x726F_6C65  # "role": two starts on one server come one after the other

_EXISTS = "SELECT 1 FROM pg_roles WHERE rolname = %s"
_MAY_LOG_IN = sql.SQL(
    "ALTER ROLE {} LOGIN PASSWORD {} NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS"
)
_OTHERS_OBJECTS = """
/* What stands in schema public and is not the owner's yet, as ALTER names it. Extensions keep
   theirs; a column's own sequence follows its table. */
WITH followers AS (
    SELECT objid FROM pg_depend LEFT JOIN pg_class ON pg_class.oid = objid
    WHERE deptype = 'e' OR (relkind = 'S' AND deptype IN ('a', 'i'))
)
SELECT CASE relkind WHEN 'S' THEN 'SEQUENCE ' ELSE 'TABLE ' END || oid::regclass FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S')
  AND relowner <> quote_ident(%(owner)s)::regrole AND oid NOT IN (SELECT objid FROM followers)
UNION ALL
SELECT 'ROUTINE ' || oid::regprocedure FROM pg_proc
WHERE pronamespace = 'public'::regnamespace
  AND proowner <> quote_ident(%(owner)s)::regrole AND oid NOT IN (SELECT objid FROM followers)
"""


@dataclass(frozen=True, slots=True)
class DatabaseRole:
    """Somebody who may log in."""

    name: str
    password: str


def make_role(connection: psycopg.Connection, role: DatabaseRole) -> None:
    """Make the role where it is missing; give it its password and no powers."""
    name = sql.Identifier(role.name)
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK_ID])
        if connection.execute(_EXISTS, [role.name]).fetchone() is None:
            connection.execute(sql.SQL("CREATE ROLE {}").format(name))
        connection.execute(_MAY_LOG_IN.format(name, role.password))


def transfer_ownership(connection: psycopg.Connection, *, owner: str) -> int:
    """Give the connection's database and all that stands in it to `owner`; return how much.

    A data folder of an earlier version belongs to the superuser throughout.
    """
    with connection.transaction():
        connection.execute(
            sql.SQL("ALTER DATABASE {} OWNER TO {}").format(
                sql.Identifier(connection.info.dbname), sql.Identifier(owner)
            )
        )
        found = connection.execute(_OTHERS_OBJECTS, {"owner": owner}).fetchall()
        for (target,) in found:
            statement = sql.SQL("ALTER {} OWNER TO {}")
            connection.execute(statement.format(sql.SQL(target), sql.Identifier(owner)))
    return len(found)
