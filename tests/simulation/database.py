"""A scratch database on a server: made, prepared by the product's own command, emptied between
seeds, dropped. Never one that holds anybody's books."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from urllib.parse import urlsplit

import psycopg
from django.core.management import call_command
from django.db import connections
from psycopg import sql
from psycopg.types.json import Json

from control.db.connection import connect

NAME_PREFIX = "penstock_simulation"
REFUSED = "refused by the simulator"
"""A request that calls itself so is one that the database does not take."""
KEPT = ("django_%", "auth_%")
SETTINGS = (
    "synchronous_commit = off", "deadlock_timeout = '50ms'", "jit = off", "lock_timeout = '60s'",
)  # fmt: skip
"""How long somebody waits for a lock is for the seed to say, not for how busy the machine is."""

TABLES = """
/* Tables that a seed may have written; partitions are dropped with their rows. */
SELECT relname FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
    AND NOT relname LIKE ANY(%s) ORDER BY relname
"""
PARTITIONS = """
SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relispartition
    AND relkind = 'r' ORDER BY relname
"""
REFUSE = f"""
ALTER TABLE metering_usage_event ADD CONSTRAINT refused_by_simulator
CHECK (client_request_id <> '{REFUSED}')
"""
"""A row that only the database refuses, whoever sends it, as often as it comes."""
SEQUENCES = """
SELECT setval(quote_ident(sequencename)::regclass, 1, false) FROM pg_sequences
WHERE schemaname = 'public' AND last_value IS NOT NULL
"""


class Scratch:
    """The scratch database as its server's superuser sees it."""

    def __init__(self, url: str) -> None:
        self.monitor = connect(url, autocommit=True)
        self._tables = [name for (name,) in self.monitor.execute(TABLES, [list(KEPT)])]
        self._pristine = {name: rows for name in self._tables if (rows := self._rows(name))}
        self._partitions = {name for (name,) in self.monitor.execute(PARTITIONS)}

    def empty(self) -> None:
        """Make the database what its migrations left, past triggers and foreign keys."""
        with self.monitor.transaction():
            self.monitor.execute("SET LOCAL session_replication_role = replica")
            for (name,) in self.monitor.execute(PARTITIONS).fetchall():
                if name not in self._partitions:
                    self.monitor.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(name)))
            for name in self._tables:
                self.monitor.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(name)))
            for name, rows in self._pristine.items():
                self._refill(name, rows)
            self.monitor.execute(SEQUENCES)

    def close(self) -> None:
        """End the monitor's session."""
        self.monitor.close()

    def _rows(self, name: str) -> Json | None:
        query = sql.SQL("SELECT json_agg(one) FROM {} AS one").format(sql.Identifier(name))
        row = self.monitor.execute(query).fetchone()
        return None if row is None or row[0] is None else Json(row[0])

    def _refill(self, name: str, rows: Json) -> None:
        statement = sql.SQL("INSERT INTO {0} SELECT * FROM json_populate_recordset(NULL::{0}, %s)")
        self.monitor.execute(statement.format(sql.Identifier(name)), [rows])


@contextmanager
def scratch(superuser_url: str, *, template: str | None = None) -> Iterator[Scratch]:
    """Make a database for Django's two roles, prepare it, and drop it in the end.

    It begins as a copy of `template`, which spares most of the preparing. A template that is not
    there is made, and stays.
    """
    name = f"{NAME_PREFIX}_{os.getpid()}"
    url = urlsplit(superuser_url)._replace(path=f"/{name}").geturl()
    with connect(superuser_url, autocommit=True) as server:
        if template is not None and not _exists(server, template):
            _make_template(server, template)
        try:
            _make(server, name, template=template or "template1")
            _prepare(name)
            made = Scratch(url)
            made.monitor.execute(REFUSE)
            try:
                yield made
            finally:
                made.close()
        finally:
            _leave()
            _drop(server, name)


def _exists(server: psycopg.Connection, name: str) -> bool:
    query = "SELECT FROM pg_database WHERE datname = %s"
    return server.execute(query, [name]).fetchone() is not None


def _make_template(server: psycopg.Connection, name: str) -> None:
    """Make it whole or not at all."""
    try:
        _make(server, name)
        _prepare(name)
    except BaseException:
        _leave()
        _drop(server, name)
        raise


def _prepare(name: str) -> None:
    _point_django_at(name)
    call_command("upgrade", stdout=StringIO())
    _leave()


def _make(server: psycopg.Connection, name: str, *, template: str = "template1") -> None:
    _drop(server, name)
    owner = connections["owner"].settings_dict["USER"]
    names = (sql.Identifier(one) for one in (name, owner, template))
    server.execute(sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE {}").format(*names))
    for setting in SETTINGS:
        change = sql.SQL("ALTER DATABASE {} SET ").format(sql.Identifier(name)) + sql.SQL(setting)
        server.execute(change)


def _drop(server: psycopg.Connection, name: str) -> None:
    dropped = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
    server.execute(dropped.format(sql.Identifier(name)))


def _point_django_at(name: str) -> None:
    """One session per thread, without a pool: a crashed caller's session ends with it."""
    for alias in connections:
        connections.settings[alias]["NAME"] = name
        connections.settings[alias]["OPTIONS"].pop("pool", None)
        connections[alias].settings_dict["NAME"] = name
        connections[alias].settings_dict["OPTIONS"].pop("pool", None)


def _leave() -> None:
    for connection in connections.all():
        connection.close()
