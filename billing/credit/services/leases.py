"""Leases: money set aside for gateways, settled by their events, given back, or voided.

settled + held <= limit at every instant: each decision is made under the organization's lock.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

import structlog
from django.db import connection, transaction

from billing.credit.limits import Headroom, find_budget, headroom
from billing.credit.models import Budget, Lease
from billing.credit.selectors import (
    abandoned_lease,
    abandoned_leases,
    idle_leases,
    lease_of_ask,
    lease_of_gateway,
    recalled_lease_ids,
)
from billing.credit.services.budgets import lock_budgets
from control.actor import system
from control.audit import services as audit
from serving.contract.lease import Ask, Granted, LeaseReply, LeaseRequest, Refused, Return

LEASE_DURATION = timedelta(minutes=15)
"""The grace in which a gateway serves while control is down."""

SETTLE = """
UPDATE credit_lease AS lease SET settled_nanos = lease.settled_nanos + event.nanos
FROM unnest(%s::text[], %s::bigint[]) AS event (lease_id, nanos)
WHERE lease.id = event.lease_id
RETURNING lease.organization_id, lease.settled_nanos > lease.granted_nanos
"""

logger = structlog.get_logger(__name__)


def answer(request: LeaseRequest, *, now: datetime) -> LeaseReply:
    """Take back what a gateway returns, then grant or refuse each of its asks.

    Every part is a transaction of its own and may be repeated after a lost answer.
    """
    for given in request.returns:
        take_back(gateway_id=request.gateway_id, given=given, now=now)
    answers = tuple(
        grant_lease(gateway_id=request.gateway_id, ask=ask, now=now) for ask in request.asks
    )
    return LeaseReply(answers=answers, recalls=recalled_lease_ids(request.gateway_id))


@transaction.atomic
def grant_lease(*, gateway_id: str, ask: Ask, now: datetime) -> Granted | Refused:
    """Set money aside for a gateway, or say why not and recall what lies idle elsewhere."""
    budget = find_budget(ask.budget_id)
    if budget is None:
        return Refused(ask.ask_id, ask.budget_id, "credit_balance_exhausted", False)
    lock_budgets([budget.organization_id])
    before = lease_of_ask(ask.ask_id)
    if before is not None and before.gateway_id == gateway_id:
        return _granted(before)
    room = headroom(budget, now)
    nanos = grant_size(
        need_nanos=ask.need_nanos, want_nanos=ask.want_nanos, available_nanos=room.available_nanos
    )
    if nanos is None or before is not None:
        return _refused(ask, room, gateway_id, now)
    return _granted(_open_lease(budget, ask, gateway_id, nanos, now))


def grant_size(*, need_nanos: int, want_nanos: int, available_nanos: int | None) -> int | None:
    """Return what to grant: the need if that is all there is, up to the wish while plenty is
    left, more than half of what is available only where the need asks for it; None to refuse.

    `available_nanos` of None is no limit. Worked examples with need 10 and want 100: of 9
    available None, of 10 available 10, of 60 available 30, of 1,000 available 100.
    """
    if available_nanos is None:
        return max(need_nanos, want_nanos)
    if available_nanos <= 0 or available_nanos < need_nanos:
        return None
    return max(need_nanos, min(want_nanos, available_nanos // 2))


@transaction.atomic
def take_back(*, gateway_id: str, given: Return, now: datetime) -> None:
    """Lower what a gateway claims of its lease, and close the lease when it is done with it."""
    lease = lease_of_gateway(given.lease_id, gateway_id)
    if lease is None:
        logger.warning("lease_return_unknown", lease_id=given.lease_id, gateway_id=gateway_id)
        return
    lock_budgets([lease.organization_id])
    lease.refresh_from_db()
    if lease.closed_at is not None:
        return
    settled_nanos = min(lease.settled_nanos, lease.granted_nanos)
    lease.keep_nanos = min(lease.keep_nanos, max(given.keep_nanos, settled_nanos))
    lease.recalled_at = None
    lease.closed_at = now if given.closed else None
    lease.save(update_fields=["keep_nanos", "recalled_at", "closed_at"])


def settle_leases(charges: Mapping[str, int]) -> list[str]:
    """Count charged nanos against leases; return the organizations, once per lease, of those
    that took more than they were granted. The organizations' locks are held."""
    rows = sorted(charges.items())
    with connection.cursor() as cursor:
        cursor.execute(SETTLE, [[row[0] for row in rows], [row[1] for row in rows]])
        return [owner for owner, is_overrun in cursor.fetchall() if is_overrun]


def void_abandoned_leases(*, now: datetime) -> int:
    """Void the leases whose gateway vanished; return how many. Safe to run twice at once."""
    return sum(
        void_lease(lease_id=lease.id, organization_id=lease.organization_id, now=now)
        for lease in abandoned_leases(now)
    )


@transaction.atomic
def void_lease(*, lease_id: str, organization_id: str, now: datetime) -> bool:
    """Give back what an abandoned lease holds; return False when it is closed already."""
    lock_budgets([organization_id])
    lease = abandoned_lease(lease_id, now)
    if lease is None:
        return False
    held_nanos = lease.held_nanos
    lease.closed_at = lease.voided_at = now
    lease.save(update_fields=["closed_at", "voided_at"])
    audit.record(
        actor=system("billing"),
        action="lease.void",
        target_kind="lease",
        target_id=lease.id,
        organization_id=organization_id,
        details={"held_nanos": held_nanos, "gateway_id": lease.gateway_id},
    )
    return True


def _open_lease(budget: Budget, ask: Ask, gateway_id: str, nanos: int, now: datetime) -> Lease:
    Budget.objects.bulk_create([budget], ignore_conflicts=True)
    return Lease.objects.create(
        ask_id=ask.ask_id,
        budget=budget,
        organization_id=budget.organization_id,
        gateway_id=gateway_id,
        granted_nanos=nanos,
        keep_nanos=nanos,
        granted_at=now,
        expires_at=now + LEASE_DURATION,
    )


def _granted(lease: Lease) -> Granted:
    return Granted(
        ask_id=lease.ask_id,
        budget_id=lease.budget_id,
        lease_id=lease.id,
        granted_nanos=lease.granted_nanos,
        expires_at=lease.expires_at,
    )


def _refused(ask: Ask, room: Headroom, gateway_id: str, now: datetime) -> Refused:
    recalled = idle_leases(ask.budget_id, gateway_id, now).update(recalled_at=now)
    return Refused(ask.ask_id, ask.budget_id, room.code, recall_in_progress=recalled > 0)
