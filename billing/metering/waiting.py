"""What waits for an operator: rows behind alarms that nobody has dealt with."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F, Min, Sum
from django.db.models.aggregates import Count
from django.db.models.functions import Greatest

from billing.credit.models import Lease
from billing.metering.models import DeadLetter

SILENT_AFTER = timedelta(hours=1)
"""No request takes longer: a lease that is open so long after its end has lost its gateway."""
SHOWN_MAX = 10


@dataclass(frozen=True, slots=True)
class SilentGateway:
    """A gateway that does not close its leases, and what they hold, in nanos."""

    gateway_id: str
    lease_count: int
    held_nanos: int
    ended_at: datetime
    """When the first of them stopped admitting."""


def open_letter_count() -> int:
    """Return how many dead letters are neither booked nor dismissed."""
    return DeadLetter.objects.filter(booked_at__isnull=True, dismissed_at__isnull=True).count()


def unseen_overruns(since: datetime) -> Sequence[Lease]:
    """Return the newest leases granted since then that took more than they were granted, and that
    nobody has acknowledged."""
    over = Lease.objects.filter(
        granted_at__gte=since, settled_nanos__gt=F("granted_nanos"), overrun_seen_at__isnull=True
    )
    return list(over.order_by("-pk")[:SHOWN_MAX])


def silent_gateways(now: datetime) -> list[SilentGateway]:
    """Return the gateways whose leases are open long after their end, the dearest first."""
    held = Greatest(F("keep_nanos") - F("settled_nanos"), 0)
    rows = (
        Lease.objects.filter(closed_at__isnull=True, admits_until__lt=now - SILENT_AFTER)
        .values_list("gateway_id")
        .annotate(Count("pk"), held=Sum(held), ended=Min("admits_until"))
        .order_by("-held")
    )
    return [SilentGateway(*row) for row in rows[:SHOWN_MAX]]
