"""The books of before: a scratch database as the code of 2475970 left it, and what it said of it.

`tests/billing/migration/make_books_2475970.py` made both.
"""

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from serving.contract.ids import new_id
from tests.support.environment import OWNER, url_as

FOLDER = Path(__file__).parent.parent / "billing" / "migration"


@contextmanager
def old_books(postgres_url: str) -> Iterator[str]:
    """Yield where the owner of a scratch database finds the old books; drop it in the end.

    `postgres_url` is the superuser's. Migrate it in a process of its own, which is told the URL.
    """
    name = f"books_{new_id().replace('-', '')}"
    with _server(postgres_url) as server:
        _say(server, "CREATE DATABASE {} OWNER {} TEMPLATE template0", name, OWNER.name)
    try:
        url = url_as(OWNER, urlsplit(postgres_url)._replace(path=f"/{name}").geturl())
        with psycopg.connect(url) as connection:
            connection.execute(gzip.decompress((FOLDER / "books_2475970.sql.gz").read_bytes()))
        yield url
    finally:
        with _server(postgres_url) as server:
            _say(server, "DROP DATABASE {} WITH (FORCE)", name)


@cache
def old_words() -> dict[str, Any]:
    """Return what the old code said of the old books, money in nanos; do not change it.

    `events` are "charged waived" by event id, `leases` "budget settled held" by lease id; sums
    that are 0 are left out of usage. `months_differ` are events whose id and `received_at` lie in
    different months, since the old gateway made the id first.
    """
    words: dict[str, Any] = json.loads((FOLDER / "books_2475970.json").read_text())
    return words


def _server(postgres_url: str) -> psycopg.Connection:
    maintenance = urlsplit(postgres_url)._replace(path="/postgres").geturl()
    return psycopg.connect(maintenance, autocommit=True)


def _say(server: psycopg.Connection, statement: str, *names: str) -> None:
    server.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))
