"""Questions about messages, for operators and for the layers that enqueue them."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Min, Q, QuerySet
from django.utils import timezone
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from control.errors import ObjectNotFound
from control.outbox.models import OPEN, Message

LATE_AFTER = timedelta(minutes=15)
"""What waits for longer than this past its first due time is late."""


@dataclass(frozen=True, slots=True)
class KindStanding:
    """How the messages of one kind stand."""

    kind: str
    waiting_count: int
    failing_count: int
    late_count: int
    given_up_count: int
    oldest_at: datetime | None
    """Since when the oldest open one is tried."""


def messages() -> QuerySet[Message]:
    """Return all messages, the newest first."""
    return Message.objects.order_by("-id")


def locked_message(message_id: int) -> Message:
    """Return a message with its row locked until the transaction ends. Raises ObjectNotFound."""
    found = Message.objects.select_for_update(no_key=True).filter(id=message_id).first()
    if found is None:
        raise ObjectNotFound("There is no such message.")
    return found


def standings(now: datetime) -> list[KindStanding]:
    """Return how each kind stands that has open or given-up messages."""
    failing = OPEN & ~Q(last_error="")
    late = OPEN & Q(started_at__lte=now - LATE_AFTER)
    rows = (
        Message.objects.filter(delivered_at__isnull=True)
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
    return [KindStanding(**row) for row in rows]


def metrics() -> Iterator[Metric]:
    """Return how many messages wait, by kind."""
    pending = GaugeMetricFamily(
        "penstock_control_outbox_waiting", "Messages that wait to be delivered.", labels=["kind"]
    )
    overdue = GaugeMetricFamily(
        "penstock_control_outbox_late", "Waiting messages that are overdue.", labels=["kind"]
    )
    for each in standings(timezone.now()):
        pending.add_metric([each.kind], each.waiting_count)
        overdue.add_metric([each.kind], each.late_count)
    yield from (pending, overdue)
