"""Enqueues, retries and purges outbox messages, wakes the worker, and counts what waits."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Event, Lock, Thread
from typing import Any

import structlog
from celery import current_app
from django.db import connection, transaction
from django.db.models import Count, Min, Q, QuerySet
from django.utils import timezone
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from control.audit import services as audit
from control.db.models import get_or_not_found
from control.errors import Conflict
from control.outbox.claims import claim
from control.outbox.delivery import run_attempt
from control.outbox.models import KEY_MAX, KIND_MAX, OPEN, OutboxMessage
from control.permissions import Actor, Permission, require_operator

LATE_AFTER = timedelta(minutes=15)
"""A message is late this long after its first due time."""
logger = structlog.get_logger(__name__)
PAYLOAD_CHARACTERS_MAX = 64_000
PAGE = 100
KEEP_DELIVERED = timedelta(days=30)
KEEP_GIVEN_UP = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class QueueStats:
    """The number of messages of one kind, by state."""

    kind: str
    waiting_count: int
    failing_count: int
    late_count: int
    given_up_count: int
    oldest_at: datetime | None
    """When the attempts at the oldest open message began."""


def messages() -> QuerySet[OutboxMessage]:
    """Return all messages, the newest first."""
    return OutboxMessage.objects.order_by("-id")


def locked_message(message_id: int) -> OutboxMessage:
    """Return a message with its row locked until the transaction ends. Raises ObjectNotFound."""
    return get_or_not_found(
        OutboxMessage.objects.select_for_update(no_key=True), "message", id=message_id
    )


def queue_stats(now: datetime) -> list[QueueStats]:
    """Return the statistics of each kind with open or given-up messages."""
    failing = OPEN & ~Q(last_error="")
    late = OPEN & Q(started_at__lte=now - LATE_AFTER)
    rows = (
        OutboxMessage.objects.filter(delivered_at__isnull=True)
        .values("kind")
        .annotate(
            waiting_count=Count("id", filter=OPEN),
            failing_count=Count("id", filter=failing),
            late_count=Count("id", filter=late),
            given_up_count=Count("id", filter=Q(given_up_at__isnull=False)),
            oldest_at=Min("started_at", filter=OPEN),
        )
        .order_by("kind")
    )
    return [QueueStats(**row) for row in rows]


def metrics() -> Iterator[Metric]:
    """Return the number of waiting messages, by kind."""
    pending = GaugeMetricFamily(
        "penstock_outbox_messages_pending", "Messages that wait to be delivered.", labels=["kind"]
    )
    overdue = GaugeMetricFamily(
        "penstock_outbox_messages_overdue", "Waiting messages that are overdue.", labels=["kind"]
    )
    for each in queue_stats(timezone.now()):
        pending.add_metric([each.kind], each.waiting_count)
        overdue.add_metric([each.kind], each.late_count)
    yield from (pending, overdue)


def wake_on_commit() -> None:
    """Wake the worker when the transaction commits, once for all its messages."""
    waiting = [callback for _, callback, *_ in connection.run_on_commit]
    if wake not in waiting:
        transaction.on_commit(wake, robust=True)


def wake() -> None:
    """Wake the worker. Returns at once and never fails: the scheduler finds due messages anyway, so
    an unavailable broker costs seconds and loses nothing."""
    _waker.wake()


class WorkerWaker:
    """A thread that sends the worker its task, once for all calls in the meantime."""

    def __init__(self) -> None:
        self._bell = Event()
        self._lock = Lock()
        self._thread: Thread | None = None

    def wake(self) -> None:
        """Let a thread of this process send the task."""
        self._bell.set()
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = Thread(target=self._run, name="outbox-messenger", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while self._bell.wait():
            self._bell.clear()
            try:
                current_app.send_task("outbox.deliver", retry=False, expires=60)
            except Exception as error:
                logger.warning("outbox_wakeup_failed", error=type(error).__name__)


_waker = WorkerWaker()


def enqueue(
    *,
    kind: str,
    key: str,
    payload: dict[str, Any],
    organization_id: str | None,
    now: datetime,
    due_at: datetime | None = None,
    lane: str | None = None,
) -> None:
    """Store a message to be delivered, in the caller's transaction.

    `kind` and `key` are unique: a repeat does nothing, for at least 30 days after the delivery.
    `payload` is JSON: ids rather than content, and no secret. `lane` groups messages that fail
    together, such as those to one destination; by default the kind's messages of one organization.
    Raises ValueError outside a transaction, for a payload that is too long and for names of a wrong
    length.
    """
    if not transaction.get_connection().in_atomic_block:
        raise ValueError("a message is enqueued in the transaction that decides it")
    lane = lane or f"{kind}:{organization_id or ''}"
    for name, value, most in (
        ("kind", kind, KIND_MAX),
        ("key", key, KEY_MAX),
        ("lane", lane, KEY_MAX),
    ):
        if not 0 < len(value) <= most:
            raise ValueError(f"{name} is {value!r}; wanted 1 to {most} characters")
    if (length := len(json.dumps(payload))) > PAYLOAD_CHARACTERS_MAX:
        raise ValueError(
            f"payload has {length} characters of JSON; wanted at most {PAYLOAD_CHARACTERS_MAX}"
        )
    due_at = due_at or now
    message = OutboxMessage(
        kind=kind,
        key=key,
        payload=payload,
        organization_id=organization_id,
        lane=lane,
        created_at=now,
        started_at=due_at,
        due_at=due_at,
    )
    OutboxMessage.objects.bulk_create([message], ignore_conflicts=True)
    wake_on_commit()


def deliver_due(*, now: datetime) -> int:
    """Deliver all messages due at `now`, one after the other; return the number of attempts.

    Failed messages are due again later, so this ends. The worker delivers many at once
    (`OutboxWorker`).
    """
    count = 0
    while page := claim(now=now, page=PAGE):
        for message in page:
            run_attempt(message, now=now)
        count += len(page)
    return count


@transaction.atomic
def retry(*, actor: Actor, message: OutboxMessage, now: datetime) -> OutboxMessage:
    """Retry a message from the start, now: one that was given up, or that waits.

    Raises Conflict for one that was delivered or is being delivered.
    """
    require_operator(actor, Permission.CUSTOMERS_WRITE)
    message = locked_message(message.id)
    if message.delivered_at is not None:
        raise Conflict("The message was already delivered.")
    if message.claimed_until is not None and message.claimed_until > now:
        raise Conflict("The message is being delivered right now.")
    message.given_up_at = None
    message.claimed_until = None
    message.started_at = message.due_at = now
    message.attempts = 0
    message.save()
    audit.record(
        actor=actor,
        action="outbox_message.retried",
        target_kind="outbox_message",
        target_id=str(message.id),
        target_name=message.kind,
        organization_id=message.organization_id or "",
        details={"kind": message.kind},
    )
    wake_on_commit()
    return message


def trim(*, now: datetime) -> int:
    """Delete messages delivered 30 days ago or given up 90 days ago; return their number."""
    delivered, _ = OutboxMessage.objects.filter(delivered_at__lt=now - KEEP_DELIVERED).delete()
    given_up, _ = OutboxMessage.objects.filter(given_up_at__lt=now - KEEP_GIVEN_UP).delete()
    return delivered + given_up
