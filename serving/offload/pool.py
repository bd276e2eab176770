"""A few worker processes, kept between jobs and replaced when one is lost, and shared fairly: one
job of each organization at a time, and bounds on who waits."""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import structlog

from serving.contract.slot_shares import NEVER_PAID
from serving.offload.process import WorkerDied, WorkerProcess

log = structlog.get_logger(__name__)


REMEMBERED_MAX = 4_096
HALF_SECONDS = 60.0
"""After which half as much is held against an organization for the time that its jobs took."""


class OffloadBusy(Exception):
    """Too many wait already, or the wait was too long; `is_own` where one's own jobs are why."""

    def __init__(self, *, is_own: bool) -> None:
        super().__init__("busy")
        self.is_own = is_own


class TenantSemaphore:
    """`places` jobs at once. An organization competes with one job at a time and its others wait
    behind that one; of those that compete, whose jobs took least time of late goes first.

    `waiting_max` jobs of all may be here, and as many more that are the only ones of theirs: many
    jobs of some keep out nobody's first.

    All organizations that never paid compete as one, with one job at a time, for which they take
    turns in the same way. They have as many jobs here as one may, and each of them half as many.
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
        self._never_paid: TenantSemaphore | None = None
        """The turns of organizations that never paid, made for the first of them."""

    @asynccontextmanager
    async def permit(self, organization_id: str, *, is_paying: bool = True) -> AsyncIterator[None]:
        """Wait for a turn and keep it. Raises OffloadBusy."""
        if is_paying:
            async with self._permit(organization_id):
                yield
            return
        if self._never_paid is None:
            self._never_paid = self._turns_of_never_paid()
        async with self._never_paid._permit(organization_id), self._permit(NEVER_PAID):
            yield

    def _turns_of_never_paid(self) -> "TenantSemaphore":
        turns = TenantSemaphore(
            1,
            waiting_max=self._waiting_of_one_max,
            waiting_of_one_max=max(1, self._waiting_of_one_max // 2),
            wait_seconds_max=self._wait_seconds_max,
        )
        turns.clock = self.clock
        return turns

    @asynccontextmanager
    async def _permit(self, organization_id: str) -> AsyncIterator[None]:
        """Wait for the turn of one among all that compete. Raises OffloadBusy."""
        own = self._counts[organization_id]
        if own >= self._waiting_of_one_max:
            raise OffloadBusy(is_own=True)
        if self._counts.total() >= self._waiting_max * (1 if own else 2):
            raise OffloadBusy(is_own=False)
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
                raise OffloadBusy(is_own=not is_first) from None
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


WORKER = "serving.offload.worker"
"""The module of a worker that is named by its function."""
START_WAIT_SECONDS = 15.0
"""For which a job waits for a process to start."""


class OffloadTimeout(Exception):
    """The job took longer than it may; its process is no more."""


class OffloadPool:
    """Runs `python -m module…` for whoever's turn it is. Processes start when they are needed.

    A job has `seconds_max` of its process; one that takes longer or goes wrong loses it, and the
    next job gets a new one. A process that is long in starting is the next job's.
    """

    def __init__(
        self, module: Sequence[str], turns: TenantSemaphore, *, seconds_max: float
    ) -> None:
        self.lost_count = 0
        self._module = module
        self._turns = turns
        self._seconds_max = seconds_max
        self._idle: list[WorkerProcess] = []
        self._starting: list[asyncio.Task[WorkerProcess]] = []
        """Tasks that nobody waits for any more."""
        self._is_closed = False

    @asynccontextmanager
    async def process(
        self, organization_id: str, *, is_paying: bool = True
    ) -> AsyncIterator[WorkerProcess]:
        """Wait for a turn and have a process. Raises OffloadBusy, OffloadTimeout, and WorkerDied
        where it is asked."""
        async with self._turns.permit(organization_id, is_paying=is_paying):
            process = await self._take()
            try:
                async with asyncio.timeout(self._seconds_max):
                    yield process
            except TimeoutError:
                raise OffloadTimeout from None
            finally:
                await self._put_back(process)

    async def warm(self) -> None:
        """Have a process ready before anybody asks. Raises WorkerDied."""
        self._idle.append(await WorkerProcess.start(self._module))

    async def close(self) -> None:
        """End all that idle or start; what works ends with its job."""
        self._is_closed = True
        for start in self._starting:
            start.cancel()
        for started in await asyncio.gather(*self._starting, return_exceptions=True):
            if isinstance(started, WorkerProcess):
                self._idle.append(started)
        self._starting = []
        while self._idle:
            await self._idle.pop().kill()

    async def _take(self) -> WorkerProcess:
        """Return one that idles or a new one. Raises WorkerDied where there is none in time."""
        self._keep_started()
        while self._idle:
            process = self._idle.pop()
            if process.is_alive:
                return process
            await process.kill()
        return await self._start()

    async def _start(self) -> WorkerProcess:
        start = self._starting.pop() if self._starting else self._begin_to_start()
        try:
            async with asyncio.timeout(START_WAIT_SECONDS):
                return await asyncio.shield(start)
        except BaseException as error:
            self._starting.append(start)
            if isinstance(error, TimeoutError):
                raise WorkerDied from None
            raise

    def _begin_to_start(self) -> asyncio.Task[WorkerProcess]:
        return asyncio.get_running_loop().create_task(WorkerProcess.start(self._module))

    def _keep_started(self) -> None:
        """Let what came late idle, and forget what never came."""
        done = [start for start in self._starting if start.done()]
        self._starting = [start for start in self._starting if not start.done()]
        self._idle += [
            start.result() for start in done if not start.cancelled() and start.exception() is None
        ]

    async def _put_back(self, process: WorkerProcess) -> None:
        """Keep a process that has nothing left to answer."""
        is_sound = process.is_alive and not process.is_asked
        if is_sound and not self._is_closed:
            self._idle.append(process)
            return
        if not is_sound:
            self.lost_count += 1
            log.warning("worker_lost", module=" ".join(self._module))
        await process.kill()
