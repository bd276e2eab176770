"""Whose turn it is: one job of each organization at a time, and bounds on who waits."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Busy(Exception):
    """Too many wait already, or the wait was too long; `is_own` where one's own jobs are why."""

    def __init__(self, *, is_own: bool) -> None:
        super().__init__("busy")
        self.is_own = is_own


class Turns:
    """`places` jobs at once. An organization competes with one job at a time and its others wait
    behind that one, so that turns go round among organizations, whoever sends how much.
    """

    def __init__(
        self, places: int, *, waiting_max: int, waiting_of_one_max: int, wait_seconds_max: float
    ) -> None:
        self._places = asyncio.Semaphore(places)
        self._waiting_max = waiting_max
        self._waiting_of_one_max = waiting_of_one_max
        self._wait_seconds_max = wait_seconds_max
        self._counts: Counter[str] = Counter()
        self._firsts: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def turn(self, organization_id: str) -> AsyncIterator[None]:
        """Wait for a turn and keep it. Raises Busy."""
        if self._counts[organization_id] >= self._waiting_of_one_max:
            raise Busy(is_own=True)
        if self._counts.total() >= self._waiting_max:
            raise Busy(is_own=False)
        self._counts[organization_id] += 1
        first = self._firsts.setdefault(organization_id, asyncio.Lock())
        try:
            await self._take(first)
            try:
                yield
            finally:
                self._places.release()
                first.release()
        finally:
            self._counts[organization_id] -= 1
            if not self._counts[organization_id]:
                del self._counts[organization_id], self._firsts[organization_id]

    async def _take(self, first: asyncio.Lock) -> None:
        is_first = False
        try:
            async with asyncio.timeout(self._wait_seconds_max):
                await first.acquire()
                is_first = True
                await self._places.acquire()
        except BaseException as error:
            if is_first:
                first.release()
            if isinstance(error, TimeoutError):
                raise Busy(is_own=not is_first) from None
            raise
