"""Whose turn it is: one job of each organization at a time, and bounds on who waits."""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

REMEMBERED_MAX = 4_096
HALF_SECONDS = 60.0
"""After which half as much is held against an organization for the time that its jobs took."""


class Busy(Exception):
    """Too many wait already, or the wait was too long; `is_own` where one's own jobs are why."""

    def __init__(self, *, is_own: bool) -> None:
        super().__init__("busy")
        self.is_own = is_own


class Turns:
    """`places` jobs at once. An organization competes with one job at a time and its others wait
    behind that one; of those that compete, whose jobs took least time of late goes first.

    `waiting_max` jobs of all may be here, and as many more that are the only ones of theirs: many
    jobs of some keep out nobody's first.
    """

    def __init__(
        self, places: int, *, waiting_max: int, waiting_of_one_max: int, wait_seconds_max: float
    ) -> None:
        self.clock: Callable[[], float] = time.monotonic
        self._free = places
        self._waiting_max = waiting_max
        self._waiting_of_one_max = waiting_of_one_max
        self._wait_seconds_max = wait_seconds_max
        self._counts: Counter[str] = Counter()
        self._firsts: dict[str, asyncio.Lock] = {}
        self._competing: dict[str, asyncio.Future[None]] = {}
        self._took: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Seconds that an organization's jobs took, and when that was."""

    @asynccontextmanager
    async def turn(self, organization_id: str) -> AsyncIterator[None]:
        """Wait for a turn and keep it. Raises Busy."""
        own = self._counts[organization_id]
        if own >= self._waiting_of_one_max:
            raise Busy(is_own=True)
        if self._counts.total() >= self._waiting_max * (1 if own else 2):
            raise Busy(is_own=False)
        self._counts[organization_id] += 1
        first = self._firsts.setdefault(organization_id, asyncio.Lock())
        try:
            await self._take(organization_id, first)
            began = self.clock()
            try:
                yield
            finally:
                self._note(organization_id, self.clock() - began)
                self._release()
                first.release()
        finally:
            self._counts[organization_id] -= 1
            if not self._counts[organization_id]:
                del self._counts[organization_id], self._firsts[organization_id]

    async def _take(self, organization_id: str, first: asyncio.Lock) -> None:
        is_first = False
        try:
            async with asyncio.timeout(self._wait_seconds_max):
                await first.acquire()
                is_first = True
                await self._compete(organization_id)
        except BaseException as error:
            if is_first:
                first.release()
            if isinstance(error, TimeoutError):
                raise Busy(is_own=not is_first) from None
            raise

    async def _compete(self, organization_id: str) -> None:
        if self._free:
            self._free -= 1
            return
        place = self._competing[organization_id] = asyncio.get_running_loop().create_future()
        try:
            await place
        except BaseException:
            if place.done() and not place.cancelled():
                self._release()
            raise
        finally:
            self._competing.pop(organization_id, None)

    def _release(self) -> None:
        """Give a place to who had least; one that left just now has no use for it."""
        competing = [name for name, place in self._competing.items() if not place.done()]
        if not competing:
            self._free += 1
            return
        self._competing[min(competing, key=self._seconds_of)].set_result(None)

    def _seconds_of(self, organization_id: str) -> float:
        seconds, at = self._took.get(organization_id, (0.0, 0.0))
        return float(seconds * 0.5 ** ((self.clock() - at) / HALF_SECONDS))

    def _note(self, organization_id: str, seconds: float) -> None:
        seconds += self._seconds_of(organization_id)
        self._took[organization_id] = seconds, self.clock()
        self._took.move_to_end(organization_id)
        if len(self._took) > REMEMBERED_MAX:
            self._took.popitem(last=False)
