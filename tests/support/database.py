"""The test database: prepared by the product's own command, then emptied by rows, not TRUNCATE.

Tests log in as the application, which may neither make databases nor empty tables of facts; the
server's superuser does both for them.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from io import StringIO
from unittest.mock import patch
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from tests.support.environment import OWNER, SUPERUSER_URL

KEEP = """
/* Remember the rows that migrations wrote, and how to tell which tables have others. */
DO $$ DECLARE one text; found boolean; questions text[]; BEGIN
    CREATE SCHEMA pristine;
    FOR one IN SELECT relname FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
    LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM public.%I)', one) INTO found;
        IF found THEN
            EXECUTE format('CREATE TABLE pristine.%1$I AS TABLE public.%1$I', one);
        END IF;
        questions := questions || format(CASE WHEN found THEN
            'SELECT %1$L WHERE EXISTS (TABLE public.%1$I EXCEPT TABLE pristine.%1$I)
                            OR EXISTS (TABLE pristine.%1$I EXCEPT TABLE public.%1$I)'
            ELSE 'SELECT %1$L WHERE EXISTS (SELECT FROM public.%1$I)' END, one);
    END LOOP;
    EXECUTE format(
        'CREATE FUNCTION pristine.changed() RETURNS SETOF text LANGUAGE plpgsql
         AS %L', format('BEGIN RETURN QUERY %s; END', array_to_string(questions, ' UNION ALL ')));
END $$
"""
RESTORE = """
/* Make the rows what they were, past triggers and foreign keys: few tables have changed, and to
   look costs less than to write. */
DO $$ DECLARE one text; BEGIN
    FOR one IN SELECT pristine.changed() LOOP
        EXECUTE format('DELETE FROM public.%I', one);
        IF to_regclass(format('pristine.%I', one)) IS NOT NULL THEN
            EXECUTE format('INSERT INTO public.%1$I SELECT * FROM pristine.%1$I', one);
        END IF;
    END LOOP;
END $$
"""
_restorers: dict[str, psycopg.Connection] = {}


@contextmanager
def made(
    server_url: str,
    *,
    suffix: str = "",
    unblock: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Iterator[None]:
    """Make a database for Django, prepare it, and drop it in the end.

    Django's own tests with real transactions leave the database as it was prepared.
    """
    from django.test import TransactionTestCase

    name = "_".join(filter(None, ("test_penstock", suffix)))
    with unblock():
        _make(server_url, name)
    try:
        with patch.object(TransactionTestCase, "_fixture_teardown", lambda _: restore()):
            yield
    finally:
        with unblock():
            _leave()
            _drop(server_url, name)


def restore() -> None:
    """Undo whatever a test has committed, and forget what was remembered of it."""
    from billing.credit.services.budgets import forget_known
    from billing.metering.interning import forget_interned

    forget_known()
    forget_interned()
    _restorer().execute(RESTORE)


@contextmanager
def backed_up() -> Iterator[Callable[[], None]]:
    """Copy the database as it is now; what is yielded goes over to the copy, as a restore does."""
    from django.db import connections

    server_url = os.environ[SUPERUSER_URL]
    name = connections["default"].settings_dict["NAME"]
    copy = f"{name}_restored"
    _leave()
    _drop(server_url, copy)
    with psycopg.connect(server_url, autocommit=True) as connection:
        made_by = sql.SQL("CREATE DATABASE {} TEMPLATE {} OWNER {}")
        identifiers = map(sql.Identifier, (copy, name, OWNER.name))
        connection.execute(made_by.format(*identifiers))
    try:
        yield lambda: _enter(copy)
    finally:
        _enter(name)
        _drop(server_url, copy)


def app_url() -> str:
    """Return where the application finds the test database, for processes of their own."""
    return _url_of_test_database(os.environ["DATABASE_URL"])


def owner_url() -> str:
    """Return where the owner of the tables finds the test database."""
    return _url_of_test_database(os.environ["DATABASE_OWNER_URL"])


def superuser_url() -> str:
    """Return where the server's superuser finds the test database."""
    return _url_of_test_database(os.environ[SUPERUSER_URL])


def _make(server_url: str, name: str) -> None:
    from django.core.management import call_command

    _drop(server_url, name)
    with psycopg.connect(server_url, autocommit=True) as connection:
        made_by = sql.SQL("CREATE DATABASE {} OWNER {}")
        connection.execute(made_by.format(sql.Identifier(name), sql.Identifier(OWNER.name)))
    _enter(name)
    call_command("prepare_database", stdout=StringIO())
    _leave()
    with psycopg.connect(_url_of_test_database(server_url)) as connection:
        connection.execute(KEEP)


def _restorer() -> psycopg.Connection:
    """Return the connection that restores, which is past triggers and foreign keys from its start.

    It stays open, and its settings as they are: either would cost the plan of what has changed.
    """
    url = superuser_url()
    if url not in _restorers:
        options = "-c session_replication_role=replica -c lock_timeout=20s"
        _restorers[url] = psycopg.connect(url, autocommit=True, options=options)
    return _restorers[url]


def _drop(server_url: str, name: str) -> None:
    with psycopg.connect(server_url, autocommit=True) as connection:
        dropped = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        connection.execute(dropped.format(sql.Identifier(name)))


def _enter(name: str) -> None:
    from django.db import connections

    _leave()
    for alias in connections:
        connections.settings[alias]["NAME"] = name
        connections[alias].settings_dict["NAME"] = name


def _leave() -> None:
    from django.db import connections

    for connection in connections.all():
        connection.close()
        connection.close_pool()
    while _restorers:
        _restorers.popitem()[1].close()


def _url_of_test_database(url: str) -> str:
    from django.db import connection

    return urlsplit(url)._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
