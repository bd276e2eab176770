"""Counting what the database is asked, without keeping Django's debug cursor in the way."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

OF_TRANSACTIONS = ("SAVEPOINT", "RELEASE", "ROLLBACK", "SET ")


@contextmanager
def counted(connection: BaseDatabaseWrapper) -> Iterator[list[str]]:
    """Collect the statements of the block; those about transactions themselves do not count."""
    seen: list[str] = []

    def note(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if not sql.lstrip().startswith(OF_TRANSACTIONS):
            seen.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(note):
        yield seen
