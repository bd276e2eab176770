"""Connections to PostgreSQL. Each one uses every setting of its URL, including TLS.

`TimeoutConnection` does not wait forever: a database that is paused, or whose machine is gone,
accepts bytes and never responds, and no server-side timeout ends that.
"""

from typing import Any, ClassVar

import psycopg
from django.db import connections
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo

CHECK_SECONDS = 0.5
"""The time that the pool's health check of a connection may take. A request that finds the pool
full of dead connections checks them for as long as it may wait for one (1 s), so it gets its 503
within 3 s, even on a busy machine."""

OF_DJANGO = frozenset({"cursor_factory", "context", "prepare_threshold"})
"""Parameters that Django passes to psycopg besides the URL: how rows are made."""


def connect(
    url: str, *, autocommit: bool = False, connect_timeout: int | None = None
) -> psycopg.Connection:
    """Connect to a libpq URL, for commands that run before Django is set up."""
    options: dict[str, Any] = (
        {} if connect_timeout is None else {"connect_timeout": connect_timeout}
    )
    return psycopg.connect(url, autocommit=autocommit, **options)


def without_password(url: str) -> tuple[str, str]:
    """Return a libpq URL's settings as a connection string without the password, and the password
    (empty: none), for commands whose arguments everybody on the host may read."""
    settings = conninfo_to_dict(url)
    password = settings.pop("password", None)
    return make_conninfo("", **settings), str(password or "")


async def connect_apart(*, connect_timeout: int) -> psycopg.AsyncConnection:
    """Connect as the application does, outside the pools, in autocommit."""
    parameters = _parameters("default", connect_timeout)
    return await psycopg.AsyncConnection.connect(**parameters, autocommit=True)


def server_version(alias: str, *, connect_timeout: int) -> str:
    """Return the `server_version` of a database of Django's settings, such as `15.18`; Django
    itself raises an error of its own for some old servers. Raises psycopg.OperationalError."""
    with psycopg.connect(**_parameters(alias, connect_timeout)) as connection:
        return connection.info.parameter_status("server_version") or ""


def _parameters(alias: str, connect_timeout: int) -> dict[str, Any]:
    given = connections[alias].get_connection_params()
    parameters = {name: value for name, value in given.items() if name not in OF_DJANGO}
    return parameters | {"connect_timeout": connect_timeout}


class TimeoutConnection(psycopg.Connection[Any]):
    """A connection that is closed if the database does not respond within `CHECK_SECONDS` for the
    pool's health check, or `answer_seconds` for any other query."""

    answer_seconds: ClassVar[float | None] = None
    """None waits forever, as the worker's tasks may; the server sets it."""
    _timeout_seconds: float | None = None

    def execute(self, query: Any, *args: Any, **options: Any) -> psycopg.Cursor[Any]:
        """Execute a query; the empty one is the pool's health check."""
        self._timeout_seconds = None if query else CHECK_SECONDS
        try:
            return super().execute(query, *args, **options)
        finally:
            self._timeout_seconds = None

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """Wait for a response. Closes the connection and raises OperationalError without one."""
        timeout_seconds = timeout or self._timeout_seconds or self.answer_seconds
        try:
            return super().wait(gen, interval, timeout_seconds)
        except psycopg.errors._WaitTimeout as error:
            if timeout is not None:
                raise
            self.pgconn.finish()
            message = f"no answer from the database in {timeout_seconds:g} s"
            raise psycopg.OperationalError(message) from error
