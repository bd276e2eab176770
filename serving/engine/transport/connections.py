"""Connections to replicas that wait for their next request, newest first."""

import asyncio
from collections import deque
from typing import NamedTuple

from serving.engine.errors import ReplicaUnreachable
from serving.engine.transport.connection import Connection
from serving.engine.transport.silence import bound_silence

IDLE_SECONDS = 4.0
"""Below the 5 s after which a replica's HTTP server closes an idle connection."""


class Address(NamedTuple):
    """Where a replica listens."""

    host: str
    port: int


class Connections:
    """Belongs to one event loop; as many connections as there are requests, which pools bound."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle: dict[Address, deque[tuple[Connection, float]]] = {}
        self._sweep: asyncio.TimerHandle | None = None

    def take(self, address: Address) -> Connection | None:
        """Return the connection that was used last, if it was used lately."""
        idle = self._idle.get(address)
        while idle:
            connection, since = idle.pop()
            if not connection.is_closed and self._loop.time() - since < IDLE_SECONDS:
                return connection
            connection.close()
        return None

    async def open(self, address: Address, connect_seconds: float) -> Connection:
        """Return a new connection. Raises ReplicaUnreachable."""
        try:
            async with asyncio.timeout(connect_seconds):
                transport, connection = await self._loop.create_connection(Connection, *address)
            bound_silence(transport.get_extra_info("socket"))
        except (TimeoutError, OSError) as error:
            raise ReplicaUnreachable(type(error).__name__) from error
        return connection

    def give_back(self, address: Address, connection: Connection) -> None:
        """Keep a connection for the next request if it is fit for one."""
        if not connection.is_reusable:
            connection.close()
            return
        self._idle.setdefault(address, deque()).append((connection, self._loop.time()))
        if self._sweep is None:
            self._sweep = self._loop.call_later(IDLE_SECONDS, self._close_stale)

    def close(self) -> None:
        """Close all that wait."""
        self._close_until(float("inf"))
        if self._sweep is not None:
            self._sweep.cancel()

    def _close_stale(self) -> None:
        self._close_until(self._loop.time() - IDLE_SECONDS)
        waits = bool(self._idle)
        self._sweep = self._loop.call_later(IDLE_SECONDS, self._close_stale) if waits else None

    def _close_until(self, moment: float) -> None:
        for address, idle in list(self._idle.items()):
            while idle and (idle[0][1] <= moment or idle[0][0].is_closed):
                idle.popleft()[0].close()
            if not idle:
                del self._idle[address]
