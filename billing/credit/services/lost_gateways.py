"""Lost gateways: what all of their leases hold is given back at once, not a day after their end."""

from dataclasses import dataclass
from datetime import datetime

import structlog
from django.db.models import Count, Sum
from django.db.models.functions import Coalesce

from billing.credit.models import Lease
from billing.credit.selectors import HELD, living_gateways, silent_leases
from billing.credit.services.budgets import (
    BEAT_WAIT_MILLISECONDS,
    BusyError,
    lock_budgets,
    waiting_at_most,
)
from billing.credit.services.leases import void
from control.errors import Conflict, InvalidValue
from control.permissions import Actor, Permission, require_operator

AT_ONCE = 50
"""Leases released in one transaction: their budgets are locked while it lasts."""

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Held:
    """Leases, the organizations they are of, and what they hold."""

    lease_count: int = 0
    held_nanos: int = 0
    organization_count: int = 0


def held_by(gateway_id: str, *, now: datetime) -> Held:
    """Return what releasing a gateway gives back. Raises Conflict for one that is alive or that
    holds nothing open."""
    if living_gateways([gateway_id], now):
        raise Conflict(
            f"{gateway_id} holds leases that have not ended, or within the hour: it may be alive."
        )
    silent = silent_leases(now).filter(gateway_id=gateway_id)
    found = silent.aggregate(
        lease_count=Count("pk"),
        held_nanos=Coalesce(Sum(HELD), 0),
        organization_count=Count("organization_id", distinct=True),
    )
    if not found["lease_count"]:
        raise Conflict(f"{gateway_id or 'Nobody'} has no open leases.")
    return Held(**found)


def release_gateway(*, actor: Actor, gateway_id: str, reason: str, now: datetime) -> Held:
    """Give back what the leases of a gateway hold whose journal is known to be lost; return what
    was given back. Those of busy budgets stay: run it again.

    Events that arrive all the same are booked, with an alarm. Raises Conflict as `held_by` does,
    InvalidValue without a reason.
    """
    require_operator(actor, Permission.FINANCE_WRITE)
    if not reason.strip():
        raise InvalidValue("Enter why its leases are released.", param="reason")
    held_by(gateway_id, now=now)
    silent = list(silent_leases(now).filter(gateway_id=gateway_id).order_by("pk"))
    released: dict[Lease, int] = {}
    for start in range(0, len(silent), AT_ONCE):
        page = silent[start : start + AT_ONCE]
        try:
            with waiting_at_most(BEAT_WAIT_MILLISECONDS):
                lock_budgets({one.budget_id for one in page})
                held = {one: void(one, actor=actor, reason=reason.strip(), now=now) for one in page}
        except BusyError:
            logger.warning("leases_busy", gateway_id=gateway_id, lease_count=len(page))
            continue
        released |= {one: nanos for one, nanos in held.items() if nanos is not None}
    return Held(
        len(released), sum(released.values()), len({one.organization_id for one in released})
    )
