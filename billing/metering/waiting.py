"""What waits for an operator: rows behind alarms that nobody has dealt with."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.db.models import F, Min, Sum
from django.db.models.aggregates import Count

from billing.credit.models import Lease
from billing.credit.selectors import HELD, living_gateways, silent_leases
from billing.metering.models import DeadLetter

SHOWN_MAX = 10


@dataclass(frozen=True, slots=True)
class SilentGateway:
    """A gateway that does not close its leases, and what they hold, in nanos."""

    gateway_id: str
    lease_count: int
    held_nanos: int
    ended_at: datetime
    """When the first of them stopped admitting."""
    is_living: bool = False
    """Whether it holds younger leases, too: it may be alive."""


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
    rows = (
        silent_leases(now)
        .values_list("gateway_id")
        .annotate(Count("pk"), held=Sum(HELD), ended=Min("admits_until"))
        .order_by("-held")
    )[:SHOWN_MAX]
    living = living_gateways([row[0] for row in rows], now)
    return [replace(SilentGateway(*row), is_living=row[0] in living) for row in rows]
