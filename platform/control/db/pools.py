"""Pools of connections to the database, one for each kind of work: what gateways and the fleet ask
never waits for customers, whatever they do with theirs."""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from django.db import connections
from psycopg_pool import ConnectionPool

CUSTOMERS, GATEWAYS = "customers", "gateways"
POOLS: dict[str, dict[str, ConnectionPool]] = defaultdict(dict)
"""By kind of work, then by Django's alias of the database; each as large as the settings say."""
kind_of_work: ContextVar[str] = ContextVar("kind_of_work", default=CUSTOMERS)

Application = Callable[..., Awaitable[None]]


def give_back_connections() -> None:
    """Give back what this thread holds, but not amid a transaction."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()


def pool_stats() -> dict[str, dict[str, int]]:
    """Return psycopg's figures of the application's pool, by kind of work; none of a pool that
    nobody has used yet."""
    unused: dict[str, int] = {}
    found = {work: POOLS[work].get("default") for work in (CUSTOMERS, GATEWAYS)}
    return {work: pool.get_stats() if pool else unused for work, pool in found.items()}


def for_gateways(application: Application) -> Application:
    """Return an ASGI application whose requests use the gateways' pool."""

    async def respond(*arguments: Any) -> None:
        kind_of_work.set(GATEWAYS)  # of this request's task alone, and the threads that it calls
        await application(*arguments)

    return respond
