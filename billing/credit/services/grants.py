"""Giving credit, once per idempotency key, and taking back what expired."""

from datetime import datetime

from django.db import transaction

from billing.credit.models import CreditGrant, GrantKind, new_grant_id
from billing.credit.selectors import (
    expired_grants,
    grant_by_key,
    grant_for_expiry,
    is_needed_by_leases,
)
from billing.credit.services.budgets import lock_budgets
from billing.ledger.models import AccountKind, TransactionKind
from billing.ledger.services import Posting, Side, open_account, post
from control.actor import Actor, system
from control.audit import services as audit
from control.errors import Conflict, Invalid
from control.tenants.permissions import require_operator
from serving.contract.ids import new_id

GRANT_MAX_NANOS = 10**18
"""A billion dollars; sums of grants stay far inside 64 bits."""
CREDIT_ACCOUNT = {
    GrantKind.PROMOTIONAL: AccountKind.PROMOTIONAL_CREDIT,
    GrantKind.PREPAID: AccountKind.CUSTOMER_BALANCE,
}
FUNDED_BY = {
    GrantKind.PROMOTIONAL: AccountKind.PROMOTION_EXPENSE,
    GrantKind.PREPAID: AccountKind.CASH,
}
EXPIRES_INTO = {
    GrantKind.PROMOTIONAL: AccountKind.PROMOTION_EXPENSE,
    GrantKind.PREPAID: AccountKind.BREAKAGE,
}


@transaction.atomic
def grant_credit(
    *,
    organization_id: str,
    kind: GrantKind,
    amount_nanos: int,
    idempotency_key: str,
    actor: Actor,
    reason: str,
    now: datetime,
    expires_at: datetime | None = None,
) -> CreditGrant:
    """Give credit and post it; it may be spent as soon as this commits.

    Repeating a call with its idempotency key returns the first grant. Raises NotPermitted for who
    is no operator, Invalid on an amount that is not positive or a missing key, Conflict when the
    key came with another kind or amount.
    """
    require_operator(actor)
    _check(amount_nanos, idempotency_key)
    lock_budgets([organization_id])
    before = grant_by_key(organization_id, idempotency_key)
    if before is not None:
        return _the_same(before, kind, amount_nanos)
    grant_id = new_grant_id()
    account_id = open_account(organization_id, CREDIT_ACCOUNT[kind], grant_id)
    funding_id = open_account(organization_id, FUNDED_BY[kind])
    _move(
        source=f"grant:{grant_id}",
        kind=TransactionKind.GRANT,
        organization_id=organization_id,
        debit_id=funding_id,
        credit_id=account_id,
        nanos=amount_nanos,
        now=now,
    )
    grant = CreditGrant.objects.create(
        id=grant_id,
        organization_id=organization_id,
        kind=kind,
        amount_nanos=amount_nanos,
        account_id=account_id,
        expires_at=expires_at,
        idempotency_key=idempotency_key,
        reason=reason,
        granted_by=actor.name,
        granted_at=now,
    )
    _record(actor, "credit.grant", grant, amount_nanos)
    return grant


def expire_grants(*, now: datetime) -> int:
    """Take back what is left of grants past their time; return how many were closed.

    Money that open leases may still spend is left for a later run. Safe to run twice at once.
    """
    return sum(
        expire_grant(grant_id=grant.id, organization_id=grant.organization_id, now=now)
        for grant in expired_grants(now)
    )


@transaction.atomic
def expire_grant(*, grant_id: str, organization_id: str, now: datetime) -> bool:
    """Close one grant past its time; return False when it is closed already, or needed."""
    lock_budgets([organization_id])
    grant = grant_for_expiry(grant_id, now)
    if grant is None or is_needed_by_leases(grant, now):
        return False
    remaining_nanos = grant.remaining_nanos
    if remaining_nanos:
        _move(
            source=f"expiry:{grant.id}",
            kind=TransactionKind.EXPIRY,
            organization_id=organization_id,
            debit_id=grant.account_id,
            credit_id=open_account(organization_id, EXPIRES_INTO[GrantKind(grant.kind)]),
            nanos=remaining_nanos,
            now=now,
        )
    grant.expired_at = now
    grant.save(update_fields=["expired_at"])
    _record(system("billing"), "credit.expire", grant, remaining_nanos)
    return True


def _the_same(grant: CreditGrant, kind: GrantKind, amount_nanos: int) -> CreditGrant:
    if (grant.kind, grant.amount_nanos) != (kind, amount_nanos):
        raise Conflict(
            f"{grant.idempotency_key!r} named a {grant.kind} grant of {grant.amount_nanos} nanos.",
            param="idempotency_key",
            code="idempotency_conflict",
        )
    return grant


def _check(amount_nanos: int, idempotency_key: str) -> None:
    if not 0 < amount_nanos <= GRANT_MAX_NANOS:
        wanted = f"more than 0 and at most {GRANT_MAX_NANOS}"
        raise Invalid(f"amount_nanos is {amount_nanos}; wanted {wanted}.", param="amount_nanos")
    if not idempotency_key:
        message = "idempotency_key is empty; wanted a name for this one grant."
        raise Invalid(message, param="idempotency_key")


def _record(actor: Actor, action: str, grant: CreditGrant, nanos: int) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind="credit_grant",
        target_id=grant.id,
        organization_id=grant.organization_id,
        details={"nanos": nanos, "reason": grant.reason},
    )


def _move(
    *,
    source: str,
    kind: TransactionKind,
    organization_id: str,
    debit_id: int,
    credit_id: int,
    nanos: int,
    now: datetime,
) -> None:
    sides = (Side(debit_id, nanos), Side(credit_id, -nanos))
    post([Posting(new_id(), source, kind, organization_id, sides)], now=now)
