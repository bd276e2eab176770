"""Proof that the application's role can do what was granted and nothing more.

Read from PostgreSQL's catalog, so whatever came by a membership, by PUBLIC or by a stranger's
GRANT is found too.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from django.db.backends.utils import CursorWrapper

from control.database.grants import LIMITS_SECONDS, UNSET
from control.database.rights import FREELY, READ


@dataclass(frozen=True, slots=True)
class Ban:
    """What must not be: a query for the names of whatever breaks it, and its words."""

    words: str
    query: str


BANS = (
    Ban(
        "the application's role has powers over the whole server",
        """
        SELECT rolname FROM pg_roles WHERE rolname = %(app)s
          AND (rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls)
        """,
    ),
    Ban(
        "the application's role is a member of",
        """
        SELECT rolname FROM pg_roles WHERE rolname <> %(app)s
          AND rolname IN (current_user, 'pg_database_owner', 'pg_write_all_data', 'pg_maintain')
          AND pg_has_role(%(app)s, oid, 'MEMBER')
        """,
    ),
    Ban(
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
    Ban(
        "the application's role may make objects in",
        """
        SELECT nspname FROM pg_namespace
        WHERE nspname !~ '^pg_(toast_)?temp_' AND has_schema_privilege(%(app)s, oid, 'CREATE')
        UNION ALL
        SELECT datname FROM pg_database
        WHERE datname = current_database() AND has_database_privilege(%(app)s, oid, 'CREATE')
        """,
    ),
    Ban(
        "without a fixed search_path, a SECURITY DEFINER function can be led astray",
        """
        SELECT oid::regprocedure::text FROM pg_proc
        WHERE prosecdef AND pronamespace = 'public'::regnamespace
          AND NOT EXISTS (SELECT FROM unnest(proconfig) one WHERE one LIKE 'search_path=%%')
        """,
    ),
)
TABLE_RIGHTS = """
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
RIGHTS = sorted(FREELY | {"TRUNCATE", "REFERENCES", "TRIGGER"})


def violations(
    owner: CursorWrapper, *, app: str, declared: Mapping[str, frozenset[str]]
) -> list[str]:
    """Return a sentence for each way in which the role `app` has more or less than it should."""
    return [*_banned(owner, app), *_mistaken_rights(owner, app, declared)]


def missing_limits(app: CursorWrapper) -> list[str]:
    """Return a sentence for each limit in time that a new session of the application lacks."""
    app.execute(UNSET, [list(LIMITS_SECONDS)])
    return [f"the application's role has no {name}" for _, name in app.fetchall()]


def _banned(owner: CursorWrapper, app: str) -> Iterator[str]:
    for ban in BANS:
        owner.execute(ban.query, {"app": app})
        if found := sorted(name for (name,) in owner.fetchall()):
            yield f"{ban.words}: {', '.join(found)}"


def _mistaken_rights(
    owner: CursorWrapper, app: str, declared: Mapping[str, frozenset[str]]
) -> Iterator[str]:
    owner.execute(TABLE_RIGHTS, {"app": app, "rights": RIGHTS})
    found = owner.fetchall()
    yield from (
        f"{table} is declared by an app and does not exist"
        for table in sorted(declared.keys() - {name for name, *_ in found})
    )
    for name, root, is_partition, is_view, has in found:
        wanted = READ if is_view else declared.get(root, FREELY)
        if not set(has) <= wanted or (not is_partition and set(has) != wanted):
            yield f"{name} gives the application {_words(has)}; wanted {_words(wanted)}"


def _words(rights: object) -> str:
    return ", ".join(sorted(rights)) or "nothing"  # type: ignore[call-overload]
