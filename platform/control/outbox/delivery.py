"""Delivers outbox messages: many at once in threads, one attempt per message.

Handlers do the work: the registry finds one by kind. A handler receives a `Delivery`, fails with a
`DeliveryError`, and is retried by its `RetryPolicy`.
"""

import logging
import time
import traceback
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from importlib import import_module
from pathlib import PurePath
from random import SystemRandom
from threading import Event, Lock
from typing import Any, Protocol

import structlog
from django.apps import apps
from django.db import connection, connections, transaction
from django.db.models import QuerySet
from django.dispatch import Signal
from django.utils import timezone

from control.alarms.count import OPERATOR, raise_alarm_on_commit
from control.audit import services as audit
from control.outbox.claims import ConcurrencyLimits, claim, ends_of
from control.outbox.models import ERROR_MAX, OPEN, OutboxMessage
from control.permissions import Actor

logger = structlog.get_logger(__name__)
OUTBOX = Actor.for_system("outbox")
THREADS = 48
POLL_SECONDS = 0.25
"""The interval at which new messages are looked for while others are being delivered."""
RUN_SECONDS = 25.0
"""A run claims nothing new after this long, so that the broker never hands its task out twice."""
TURN_SECONDS = 1.0
"""The time that a second run waits for the first to end; after this it returns, since the first
finds all messages itself."""
MINUTE = timedelta(minutes=1)
JITTER = 0.2
"""A wait is up to this share longer, so that messages that failed together are not retried
together."""
_random = SystemRandom()
given_up = Signal()
"""Sent in the transaction that gives a message up, with `message` (OutboxMessage) and `now`. The
message is not retried automatically."""


class DeliveryError(Exception):
    """A failed delivery. Any other exception of a handler is retried like this one.

    The reason is stored and shown to operators: it must hold no secret, link or content.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RetryAfter(DeliveryError):
    """Retry after `after`, regardless of the number of attempts, until the kind's time is over."""

    def __init__(self, after: timedelta, reason: str = "asked to come again later") -> None:
        super().__init__(reason)
        self.after = after


class PermanentFailure(DeliveryError):
    """The delivery cannot succeed; an operator may retry it anyway."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The input of a handler. It may come twice, so `key` must make its effect unique."""

    kind: str
    key: str
    payload: dict[str, Any]
    organization_id: str | None
    attempt: int
    """Counted from 1."""
    now: datetime


def without_transaction() -> None:
    """Return the connection to the pool before a possibly long call to an external service."""
    if not connection.in_atomic_block:
        connection.close()


Handler = Callable[[Delivery], None]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The retries of a kind: after each failure the next of `waits`, the last one repeated.

    A message is given up after `give_up_after`, or `attempts_max` attempts where that is set. An
    attempt that takes longer than `time_limit` counts as failed.
    """

    waits: tuple[timedelta, ...] = (
        timedelta(seconds=5),
        timedelta(seconds=30),
        2 * MINUTE,
        10 * MINUTE,
        30 * MINUTE,
        60 * MINUTE,
    )
    give_up_after: timedelta = timedelta(days=3)
    attempts_max: int | None = None
    time_limit: timedelta = timedelta(seconds=30)
    is_alarm: bool = True
    """Whether giving up is an alarm."""

    def wait(self, attempt: int) -> timedelta:
        """Return the wait after the failure of an attempt (counted from 1)."""
        wait = self.waits[min(attempt, len(self.waits)) - 1]
        return wait * (1 + _random.uniform(0, JITTER))

    def is_over(self, attempt: int, started_at: datetime, next_at: datetime) -> bool:
        """Tell whether the next attempt would be one too many, or too late."""
        too_often = self.attempts_max is not None and attempt >= self.attempts_max
        return too_often or next_at > started_at + self.give_up_after


DEFAULT = RetryPolicy()


@cache
def registered(name: str) -> dict[str, Any]:
    """Return the merged dictionaries of a name in the modules that apps name as `deliveries`:
    DELIVERIES, the handler of each kind; POLICIES, its retry policy if not the default."""
    found: dict[str, Any] = {}
    for config in apps.get_app_configs():
        if module := getattr(config, "deliveries", None):
            found |= getattr(import_module(module), name, {})
    return found


def handler_of(kind: str) -> Handler | None:
    """Return the handler of a kind; None where no app has one."""
    return registered("DELIVERIES").get(kind)


def policy_of(kind: str) -> RetryPolicy:
    """Return the retry policy of a kind."""
    return registered("POLICIES").get(kind, DEFAULT)


def run_attempt(message: OutboxMessage, *, now: datetime) -> None:
    """Deliver a claimed message once, and store the outcome. Raises nothing of the handler's."""
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
    """Mark a message as delivered, even if the attempt ended too late."""
    rows = OutboxMessage.objects.filter(id=message.id, delivered_at__isnull=True)
    rows.update(delivered_at=now, given_up_at=None, claimed_until=None, last_error="")


def mark_failed(message: OutboxMessage, error: Exception, *, now: datetime) -> None:
    """Schedule a message's next attempt, or give the message up.

    An attempt that a later one has overtaken changes nothing.
    """
    policy = policy_of(message.kind)
    if isinstance(error, RetryAfter):
        next_at = now + max(error.after, timedelta(seconds=1))
        is_over = next_at > message.started_at + policy.give_up_after
    else:
        next_at = now + policy.wait(message.attempts)
        is_over = policy.is_over(message.attempts, message.started_at, next_at)
    reason = scrubbed(error)
    logger.warning(
        "outbox_attempt_failed",
        message_id=message.id,
        kind=message.kind,
        organization_id=message.organization_id,
        attempt=message.attempts,
        reason=reason,
    )
    if isinstance(error, PermanentFailure) or is_over:
        _give_up(message, reason, now=now)
    else:
        _mine(message).update(
            due_at=max(next_at, message.started_at), claimed_until=None, last_error=reason
        )


def scrubbed(error: Exception) -> str:
    """Return the reason of a failure without text from outside, which may hold secrets and links.

    A handler's own reason is kept; for any other error it is the type and the place in the code.
    """
    if isinstance(error, DeliveryError):
        reason = error.reason
    else:
        frames = traceback.extract_tb(error.__traceback__)
        place = f" at {PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
        reason = f"{type(error).__name__}{place}"
    return "".join(c if c.isprintable() else " " for c in reason)[:ERROR_MAX] or "failed"


@transaction.atomic
def _give_up(message: OutboxMessage, reason: str, *, now: datetime) -> None:
    if not _mine(message).update(given_up_at=now, claimed_until=None, last_error=reason):
        return
    is_alarm = policy_of(message.kind).is_alarm
    logger.log(
        logging.ERROR if is_alarm else logging.INFO,
        "outbox_message_abandoned",
        message_id=message.id,
        kind=message.kind,
        organization_id=message.organization_id,
        attempt=message.attempts,
        reason=reason,
    )
    audit.record(
        actor=OUTBOX,
        action="outbox_message.abandoned",
        target_kind="outbox_message",
        target_id=str(message.id),
        target_name=message.kind,
        organization_id=message.organization_id or "",
        details={"kind": message.kind, "attempts": message.attempts, "reason": reason},
    )
    if is_alarm:
        owner = message.organization_id or OPERATOR
        raise_alarm_on_commit(owner, "outbox_message_abandoned", now=now)
    given_up.send(OutboxMessage, message=message, now=now)


def _mine(message: OutboxMessage) -> QuerySet[OutboxMessage]:
    """Return the message, unless a later attempt has begun."""
    return OutboxMessage.objects.filter(OPEN, id=message.id, attempts=message.attempts)


class Flag(Protocol):
    """A flag that a thread or another process may set once."""

    def set(self) -> None:
        """Set it."""

    def is_set(self) -> bool:
        """Tell whether it is set."""


class OutboxWorker:
    """Delivers messages in the threads of one process."""

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
        self._run_lock = Lock()
        self._stopping = stopping or Event()

    def run(self, seconds: float = RUN_SECONDS) -> None:
        """Deliver until nothing is due, or for `seconds`; at most one run per process at a time."""
        if not self._run_lock.acquire(timeout=TURN_SECONDS):
            return
        try:
            ends_at = time.monotonic() + seconds
            while self._refill(may_take=time.monotonic() < ends_at) or self._at_work:
                wait(self._at_work, POLL_SECONDS, return_when=FIRST_COMPLETED)
                self._sweep()
        finally:
            self._run_lock.release()

    def stop(self) -> None:
        """Claim nothing new: the process is shutting down."""
        self._stopping.set()

    def close(self) -> None:
        """Wait for running deliveries, and end the threads."""
        self.stop()
        self._executor.shutdown()

    def _refill(self, *, may_take: bool) -> int:
        """Claim messages for the free threads; return their number."""
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
        """Remove finished deliveries, and mark those past their time limit as failed."""
        now = self._clock()
        for future, (message, ends_at) in list(self._at_work.items()):
            if future.done():
                del self._at_work[future]
                if error := future.exception():
                    # Its claim expires, and another attempt follows.
                    logger.error("outbox_attempt_crashed", error=type(error).__name__)
            elif now > ends_at:
                del self._at_work[future]
                self._overdue.add(future)
                limit = policy_of(message.kind).time_limit
                mark_failed(
                    message, DeliveryError(f"took longer than {in_seconds(limit)} s"), now=now
                )


def in_seconds(duration: timedelta) -> str:
    """Return a duration in seconds, without a needless fraction."""
    return f"{duration.total_seconds():g}"
