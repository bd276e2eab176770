"""PostgreSQL for the books: the product's own server with its own durable settings, to itself."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from infra.local.database_roles import APP, OWNER, DatabaseRole, make_role
from infra.local.postgres import ADDRESS, SUPERUSER, prepare
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.machine import ANYWHERE
from tests.benchmarks.process import Child, free_port, running

PASSWORD = "bench"
START_SECONDS = 30
SETTINGS = (
    "server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers",
    "max_wal_size", "work_mem", "jit",
)  # fmt: skip
"""What a reader must know of a server: its version, and what decides durability and memory."""


@dataclass(frozen=True)
class Database:
    """One database of a server, and how each role logs in."""

    name: str
    port: int

    @property
    def app_url(self) -> str:
        """As the application, which is what all services are."""
        return self.url(APP)

    @property
    def owner_url(self) -> str:
        """As the owner of the tables."""
        return self.url(OWNER)

    @property
    def superuser_url(self) -> str:
        """As the server's superuser, who writes history."""
        return self.url(SUPERUSER)

    def url(self, role: str) -> str:
        """Return the address for a role."""
        return f"postgresql://{role}:{PASSWORD}@{ADDRESS}:{self.port}/{self.name}"

    def ask(self, statement: str) -> list[tuple]:
        """Return the rows of a statement, asked as the superuser."""
        with psycopg.connect(self.superuser_url, autocommit=True) as connection:
            return connection.execute(statement).fetchall()


@dataclass(frozen=True)
class Server:
    """A running server."""

    port: int
    process: Child

    def settings(self) -> str:
        """Return SETTINGS as they are in force."""
        shown = [f"{name} {self._root.ask(f'SHOW {name}')[0][0]}" for name in SETTINGS]
        return "PostgreSQL: " + ", ".join(shown)

    def database(self, name: str) -> Database:
        """Return an empty database, made anew."""
        self.drop(name)
        self._run(_named("CREATE DATABASE {} OWNER {}", name, OWNER))
        return Database(name, self.port)

    def drop(self, name: str) -> None:
        """Drop a database where there is one of that name."""
        self._run(_named("DROP DATABASE IF EXISTS {} WITH (FORCE)", name))

    def find(self, name: str) -> Database | None:
        """Return a database that an earlier benchmark of this run left behind."""
        there = {row[0] for row in self._root.ask("SELECT datname FROM pg_database")}
        return Database(name, self.port) if name in there else None

    def _run(self, statement: sql.Composed) -> None:
        with psycopg.connect(self._root.superuser_url, autocommit=True) as connection:
            connection.execute(statement)

    @property
    def _root(self) -> Database:
        return Database("postgres", self.port)


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Run the server while the block lasts; its data stay in `folder` for the next benchmark."""
    port = free_port()
    data = folder / "books"
    data.mkdir(exist_ok=True)
    for one in (folder, data):
        one.chmod(0o755)  # as root, the server runs as another user
    made = prepare(data / "postgres", port=port, password=PASSWORD)
    with running(
        "postgres", made.command(), folder=folder, cores=ANYWHERE, env={},
        user=made.system_user, stop_signal=signal.SIGINT,
    ) as process:  # fmt: skip
        server = Server(port, process)
        _wait_and_make_roles(server)
        yield server


def _wait_and_make_roles(server: Server) -> None:
    deadline = time.monotonic() + START_SECONDS
    url = Database("postgres", server.port).superuser_url
    while True:
        try:
            with psycopg.connect(url) as connection:
                for name in (OWNER, APP):
                    make_role(connection, DatabaseRole(name, PASSWORD))
            return
        except psycopg.OperationalError as error:
            if time.monotonic() > deadline:
                raise BenchmarkFailed(f"PostgreSQL does not answer: {error}") from error
            time.sleep(0.2)


def _named(statement: str, *names: str) -> sql.Composed:
    return sql.SQL(statement).format(*map(sql.Identifier, names))
