"""Delivers outbox messages: many at once by threads, each message by one attempt."""

import logging
import time
import traceback
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import datetime, timedelta
from pathlib import PurePath
from threading import Event, Lock
from typing import Protocol

import structlog
from django.db import connections, transaction
from django.db.models import QuerySet
from django.utils import timezone

from control.audit import services as audit
from control.outbox.claims import ConcurrencyLimits, claim, ends_of
from control.outbox.delivery import (
    Delivery,
    DeliveryError,
    PermanentFailure,
    RetryAfter,
    given_up,
    handler_of,
    policy_of,
)
from control.outbox.models import ERROR_MAX, OPEN, OutboxMessage
from control.permissions import Actor

logger = structlog.get_logger(__name__)
OUTBOX = Actor.for_system("outbox")
THREADS = 48
POLL_SECONDS = 0.25
"""How often something new is looked for while others are at work."""
RUN_SECONDS = 25.0
"""A run takes nothing new after this long, so that the broker never gives its task out twice."""
TURN_SECONDS = 1.0
"""How long a second run waits for the first to end; after this it goes on and finds all itself."""


def run_attempt(message: OutboxMessage, *, now: datetime) -> None:
    """Deliver a claimed message once, and keep what came of it. Raises nothing of the handler's."""
    handler = handler_of(message.kind)
    delivery = Delivery(
        message.kind,
        message.key,
        message.payload,
        message.organization_id,
        message.attempts,
        now,
    )
    try:
        if handler is None:
            raise DeliveryError("no app delivers this kind")
        handler(delivery)
    except Exception as error:
        mark_failed(message, error, now=now)
    else:
        mark_delivered(message, now=now)


def mark_delivered(message: OutboxMessage, *, now: datetime) -> None:
    """End a message that was delivered; done is done, also where the attempt came too late."""
    rows = OutboxMessage.objects.filter(id=message.id, delivered_at__isnull=True)
    rows.update(delivered_at=now, given_up_at=None, claimed_until=None, last_error="")


def mark_failed(message: OutboxMessage, error: Exception, *, now: datetime) -> None:
    """Let a message wait for its next attempt, or give it up.

    An attempt that another one has overtaken changes nothing.
    """
    policy = policy_of(message.kind)
    if isinstance(error, RetryAfter):
        next_at = now + max(error.after, timedelta(seconds=1))
        is_over = next_at > message.started_at + policy.give_up_after
    else:
        next_at = now + policy.wait(message.attempts)
        is_over = policy.is_over(message.attempts, message.started_at, next_at)
    words = scrubbed(error)
    logger.warning(
        "outbox_attempt_failed",
        message_id=message.id,
        kind=message.kind,
        organization_id=message.organization_id,
        attempt=message.attempts,
        reason=words,
    )
    if isinstance(error, PermanentFailure) or is_over:
        _give_up(message, words, now=now)
    else:
        _mine(message).update(
            due_at=max(next_at, message.started_at), claimed_until=None, last_error=words
        )


def scrubbed(error: Exception) -> str:
    """Return why it failed without what others wrote: their messages may hold secrets and links.

    A handler's own reason is kept; of any other error its kind and where in the code it arose.
    """
    if isinstance(error, DeliveryError):
        words = error.reason
    else:
        frames = traceback.extract_tb(error.__traceback__)
        place = f" at {PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
        words = f"{type(error).__name__}{place}"
    return "".join(c if c.isprintable() else " " for c in words)[:ERROR_MAX] or "failed"


@transaction.atomic
def _give_up(message: OutboxMessage, words: str, *, now: datetime) -> None:
    given = _mine(message).update(given_up_at=now, claimed_until=None, last_error=words)
    if not given:
        return
    is_alarm = policy_of(message.kind).is_alarm
    logger.log(
        logging.ERROR if is_alarm else logging.INFO,
        "outbox_given_up",
        message_id=message.id,
        kind=message.kind,
        organization_id=message.organization_id,
        attempt=message.attempts,
        reason=words,
    )
    audit.record(
        actor=OUTBOX,
        action="outbox.give_up",
        target_kind="outbox_message",
        target_id=str(message.id),
        organization_id=message.organization_id or "",
        details={"kind": message.kind, "attempts": message.attempts, "reason": words},
    )
    given_up.send(OutboxMessage, message=message, is_alarm=is_alarm, now=now)


def _mine(message: OutboxMessage) -> QuerySet[OutboxMessage]:
    """The message, while no later attempt has begun."""
    return OutboxMessage.objects.filter(OPEN, id=message.id, attempts=message.attempts)


class Flag(Protocol):
    """What may be set once, by a thread or another process."""

    def set(self) -> None:
        """Set it."""

    def is_set(self) -> bool:
        """Tell whether it is set."""


class OutboxWorker:
    """The deliveries of one process."""

    def __init__(
        self,
        *,
        threads: int = THREADS,
        bounds: ConcurrencyLimits | None = None,
        clock: Callable[[], datetime] = timezone.now,
        stopping: Flag | None = None,
    ) -> None:
        self._threads = threads
        self._bounds = bounds
        self._clock = clock
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="outbox")
        self._at_work: dict[Future[None], tuple[OutboxMessage, datetime]] = {}
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
                wait(self._at_work, POLL_SECONDS, return_when=FIRST_COMPLETED)
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
            limit = policy_of(message.kind).time_limit
            self._at_work[future] = (message, self._clock() + limit)
        return len(page)

    def _deliver(self, message: OutboxMessage) -> None:
        try:
            run_attempt(message, now=self._clock())
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
                limit = policy_of(message.kind).time_limit
                mark_failed(
                    message, DeliveryError(f"took longer than {in_seconds(limit)} s"), now=now
                )


def in_seconds(duration: timedelta) -> str:
    """Return a duration in seconds, without a fraction where there is none."""
    return f"{duration.total_seconds():g}"
