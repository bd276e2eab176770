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
/* Remember the rows that migrations wrote. */
DO $$ DECLARE one text; BEGIN
    CREATE SCHEMA pristine;
    FOR one IN SELECT relname FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
    LOOP
        EXECUTE format('CREATE TABLE pristine.%1$I AS TABLE public.%1$I', one);
    END LOOP;
END $$
"""
RESTORE = """
/* Make the rows what they were, past triggers and foreign keys. */
SET LOCAL session_replication_role = replica;
SET LOCAL lock_timeout = '20s';
DO $$ DECLARE one text; BEGIN
    FOR one IN SELECT relname FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
    LOOP
        EXECUTE format('DELETE FROM public.%I', one);
        IF to_regclass(format('pristine.%I', one)) IS NOT NULL THEN
            EXECUTE format('INSERT INTO public.%1$I SELECT * FROM pristine.%1$I', one);
        END IF;
    END LOOP;
END $$
"""


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
    with psycopg.connect(superuser_url()) as connection:
        connection.execute(RESTORE)


def owner_url() -> str:
    """Return where the owner of the tables finds the test database."""
    return _url_of_test_database(os.environ["DATABASE_OWNER_URL"])


def superuser_url() -> str:
    """Return where the server's superuser finds the test database."""
    return _url_of_test_database(os.environ[SUPERUSER_URL])


def _make(server_url: str, name: str) -> None:
    from django.core.management import call_command
    from django.db import connections

    _drop(server_url, name)
    with psycopg.connect(server_url, autocommit=True) as connection:
        made_by = sql.SQL("CREATE DATABASE {} OWNER {}")
        connection.execute(made_by.format(sql.Identifier(name), sql.Identifier(OWNER.name)))
    for alias in connections:
        connections.settings[alias]["NAME"] = name
        connections[alias].settings_dict["NAME"] = name
    call_command("prepare_database", stdout=StringIO())
    _leave()
    with psycopg.connect(_url_of_test_database(server_url)) as connection:
        connection.execute(KEEP)


def _drop(server_url: str, name: str) -> None:
    with psycopg.connect(server_url, autocommit=True) as connection:
        dropped = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        connection.execute(dropped.format(sql.Identifier(name)))


def _leave() -> None:
    from django.db import connections

    for connection in connections.all():
        connection.close()
        connection.close_pool()


def _url_of_test_database(url: str) -> str:
    from django.db import connection

    return urlsplit(url)._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
