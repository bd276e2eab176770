"""Many deliveries at once: threads that wait for the outside, refilled as they get free."""

import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import datetime, timedelta
from threading import Event, Lock
from typing import Protocol

import structlog
from django.db import connections
from django.utils import timezone

from control.outbox import registry
from control.outbox.attempts import attempt, fail
from control.outbox.claims import Bounds, claim, ends_of
from control.outbox.errors import Undelivered
from control.outbox.models import Message

logger = structlog.get_logger(__name__)

THREADS = 48
LOOK_SECONDS = 0.25
"""How often something new is looked for while others are at work."""
RUN_SECONDS = 25.0
"""A run takes nothing new after this long, so that the broker never gives its task out twice."""
TURN_SECONDS = 1.0
"""How long a second run waits for the first to end; after this it goes on and finds all itself."""


class Flag(Protocol):
    """What may be set once, by a thread or another process."""

    def set(self) -> None:
        """Set it."""

    def is_set(self) -> bool:
        """Tell whether it is set."""


class Deliverer:
    """The deliveries of one process."""

    def __init__(
        self,
        *,
        threads: int = THREADS,
        bounds: Bounds | None = None,
        clock: Callable[[], datetime] = timezone.now,
        stopping: Flag | None = None,
    ) -> None:
        self._threads = threads
        self._bounds = bounds
        self._clock = clock
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="outbox")
        self._at_work: dict[Future[None], tuple[Message, datetime]] = {}
        self._overdue: set[Future[None]] = set()
        self._after: dict[str, str] = {}
        self._turn = Lock()
        self._stopping = stopping or Event()

    def run(self, seconds: float = RUN_SECONDS) -> None:
        """Deliver until nothing is due, or for `seconds`; at most one run per process at a time."""
        if not self._turn.acquire(timeout=TURN_SECONDS):
            return
        try:
            ends_at = time.monotonic() + seconds
            while self._refill(may_take=time.monotonic() < ends_at) or self._at_work:
                wait(self._at_work, LOOK_SECONDS, return_when=FIRST_COMPLETED)
                self._sweep()
        finally:
            self._turn.release()

    def stop(self) -> None:
        """Take nothing new: the process is asked to end."""
        self._stopping.set()

    def close(self) -> None:
        """Wait for what is at work, and end the threads."""
        self.stop()
        self._executor.shutdown()

    def _refill(self, *, may_take: bool) -> int:
        """Give free threads something to do; return how many got something."""
        self._overdue = {each for each in self._overdue if not each.done()}
        free = self._threads - len(self._at_work) - len(self._overdue)
        if not may_take or self._stopping.is_set() or free <= 0:
            return 0
        page = claim(now=self._clock(), page=free, bounds=self._bounds, after=self._after)
        self._after = ends_of(page)
        for message in page:
            future = self._executor.submit(self._deliver, message)
            limit = registry.policy_of(message.kind).time_limit
            self._at_work[future] = (message, self._clock() + limit)
        return len(page)

    def _deliver(self, message: Message) -> None:
        try:
            attempt(message, now=self._clock())
        finally:
            connections.close_all()  # back to the pool

    def _sweep(self) -> None:
        """Forget what is done, and let wait for later what takes too long."""
        now = self._clock()
        for future, (message, ends_at) in list(self._at_work.items()):
            if future.done():
                del self._at_work[future]
                if error := future.exception():
                    # Its lease ends by itself, and another attempt follows.
                    logger.error("outbox_attempt_lost", error=type(error).__name__)
            elif now > ends_at:
                del self._at_work[future]
                self._overdue.add(future)
                limit = registry.policy_of(message.kind).time_limit
                fail(message, Undelivered(f"took longer than {in_seconds(limit)} s"), now=now)


def in_seconds(duration: timedelta) -> str:
    """Return a duration in seconds, without a fraction where there is none."""
    return f"{duration.total_seconds():g}"
