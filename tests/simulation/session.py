"""A thread's database session, which a crash of its caller ends without the server's making a new
one: that would cost more than what a call does in it."""

from typing import Any

import psycopg
from django.db import connection


class Session:
    """The session of this thread's connection, which has no pool."""

    def __init__(self) -> None:
        self._spare: psycopg.Connection | None = None
        self._connect = connection.get_new_connection
        connection.get_new_connection = self._renew  # type: ignore[method-assign, assignment]

    def lose(self) -> None:
        """Undo what was not committed, and let nobody say anything more in this session."""
        raw = connection.connection
        if raw is None or raw.closed:
            return
        raw.rollback()
        raw.autocommit = True
        raw.execute("DISCARD ALL")
        self._spare, connection.connection = raw, psycopg.Connection(psycopg.pq.PGconn())
        connection.close()

    def end(self) -> None:
        """Close it."""
        connection.close()
        if self._spare is not None:
            self._spare.close()

    def _renew(self, parameters: dict[str, Any]) -> psycopg.Connection:
        """Return the session as if it were new."""
        spare, self._spare = self._spare, None
        return self._connect(parameters) if spare is None or spare.closed else spare
