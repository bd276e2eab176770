"""Database connection pools, one for each kind of work, so that requests of gateways and the fleet
never wait for a connection that customers' requests hold."""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from django.db import connections
from psycopg_pool import ConnectionPool

CUSTOMERS, GATEWAYS = "customers", "gateways"
POOLS: dict[str, dict[str, ConnectionPool]] = defaultdict(dict)
"""Pools by kind of work, then by Django's database alias; each as large as the settings say."""
kind_of_work: ContextVar[str] = ContextVar("kind_of_work", default=CUSTOMERS)

Application = Callable[..., Awaitable[None]]


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
