"""Where connections to PostgreSQL begin, all of them with every setting that their address names:
TLS as it was asked for, whoever connects.

`TimeoutConnection` does not wait for ever: a database that is paused, or whose machine is gone,
takes bytes and never answers, and no timeout of the server's own ends that.
"""

from typing import Any, ClassVar

import psycopg
from django.db import connections
from psycopg.abc import RV, PQGen

CHECK_SECONDS = 0.5
"""How long the pool's question whether a connection lives may take. A request that finds the pool
full of dead ones asks for as long as it may wait for one (1 s), so it has its 503 within 3 s, on a
busy machine too."""

OF_DJANGO = frozenset({"cursor_factory", "context", "prepare_threshold"})
"""What Django's parameters say to psycopg beside the address: how rows are made."""


def connect(
    url: str, *, autocommit: bool = False, connect_timeout: int | None = None
) -> psycopg.Connection:
    """Connect to an address, a libpq URL; commands that have no Django yet do so."""
    options: dict[str, Any] = (
        {} if connect_timeout is None else {"connect_timeout": connect_timeout}
    )
    return psycopg.connect(url, autocommit=autocommit, **options)


async def connect_apart(*, connect_timeout: int) -> psycopg.AsyncConnection:
    """Connect as the application does, on a connection that is no pool's, in autocommit."""
    found = connections["default"].get_connection_params()
    parameters = {name: value for name, value in found.items() if name not in OF_DJANGO}
    parameters |= {"connect_timeout": connect_timeout, "autocommit": True}
    return await psycopg.AsyncConnection.connect(**parameters)


class TimeoutConnection(psycopg.Connection[Any]):
    """Ends where no answer comes: at once for the pool's check, else after `answer_seconds`."""

    answer_seconds: ClassVar[float | None] = None
    """None waits for ever, as tasks of the worker may; who serves requests sets it."""
    _patience_seconds: float | None = None

    def execute(self, query: Any, *args: Any, **options: Any) -> psycopg.Cursor[Any]:
        """Execute a query; the empty one is the pool's check."""
        self._patience_seconds = None if query else CHECK_SECONDS
        try:
            return super().execute(query, *args, **options)
        finally:
            self._patience_seconds = None

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """Wait for an answer. Raises OperationalError, the connection closed, where none comes."""
        patience_seconds = timeout or self._patience_seconds or self.answer_seconds
        try:
            return super().wait(gen, interval, patience_seconds)
        except psycopg.errors._WaitTimeout as error:
            if timeout is not None:
                raise
            self.pgconn.finish()
            words = f"no answer from the database in {patience_seconds:g} s"
            raise psycopg.OperationalError(words) from error
