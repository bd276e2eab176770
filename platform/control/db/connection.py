"""Connections to PostgreSQL and their pools. Each one uses every setting of its URL, including TLS.

Each kind of work has its own pool, so that requests of gateways and the fleet never wait for a
connection that customers' requests hold.

`TimeoutConnection` does not wait forever: a database that is paused, or whose machine is gone,
accepts bytes and never responds, and no server-side timeout ends that.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, ClassVar

import psycopg
from django.db import connections
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool

CHECK_SECONDS = 0.5
"""The time that the pool's health check of a connection may take. A request that finds the pool
full of dead connections checks them for as long as it may wait for one (1 s), so it gets its 503
within 3 s, even on a busy machine."""

OF_DJANGO = frozenset({"cursor_factory", "context", "prepare_threshold"})
"""Parameters that Django passes to psycopg besides the URL: how rows are made."""
CUSTOMERS, GATEWAYS = "customers", "gateways"
POOLS: dict[str, dict[str, ConnectionPool]] = defaultdict(dict)
"""Pools by kind of work, then by Django's database alias; each as large as the settings say."""
kind_of_work: ContextVar[str] = ContextVar("kind_of_work", default=CUSTOMERS)

Application = Callable[..., Awaitable[None]]


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


def give_back_connections() -> None:
    """Give back this thread's connections, except one with an open transaction."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()


def pool_stats() -> dict[str, dict[str, int]]:
    """Return psycopg's pool statistics by kind of work; none for a pool that is not used yet."""
    unused: dict[str, int] = {}
    pools = {work: POOLS[work].get("default") for work in (CUSTOMERS, GATEWAYS)}
    return {work: pool.get_stats() if pool else unused for work, pool in pools.items()}


def for_gateways(application: Application) -> Application:
    """Return an ASGI application whose requests use the gateways' pool."""

    async def respond(*arguments: Any) -> None:
        kind_of_work.set(GATEWAYS)  # for this request's task and the threads that it calls
        await application(*arguments)

    return respond
