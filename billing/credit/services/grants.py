"""Giving credit, once per idempotency key; taking back what expired, or was given by mistake."""

from datetime import datetime, timedelta

import structlog
from django.db import transaction

from billing.credit.models import CreditGrant, GrantKind, new_grant_id
from billing.credit.selectors import (
    budget_by_row,
    grant_by_key,
    grant_with_account,
    grants_to_expire,
    held_since_before,
    unfollowed_nanos,
)
from billing.credit.services.budgets import (
    BEAT_WAIT_MILLISECONDS,
    BusyError,
    lock_budgets,
    open_balance,
    waiting_at_most,
)
from billing.credit.services.draws import allocate, post_unposted
from billing.credit.services.expiries import may_add_expiry
from billing.ledger.causes import CREDIT_RULES, PREPAID_REVERSAL, PostingRule, require_permission
from billing.ledger.post import Leg, post, transfer
from billing.ledger.selectors import AccountKey, funding_account
from control.audit import services as audit
from control.db.row_changes import plain_values
from control.errors import Conflict, InvalidValue, ObjectNotFound
from control.permissions import Actor
from serving.contract.money import exact_dollars

GRANT_MAX_NANOS = 10**18
"""A billion dollars; sums of grants stay far inside 64 bits."""
KEY_MAX = 100
FOLLOWED_WITHIN = timedelta(hours=1)
"""How long after its end a grant waits for charges that the ledger does not hold yet."""

logger = structlog.get_logger(__name__)


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
    """Give credit and post it; it may be spent as soon as this commits, and pays debts first.

    Repeating a call with its idempotency key returns the first grant. Raises NotPermitted for who
    is no operator, InvalidValue on an amount that is not positive or a missing key, Conflict when
    the key came with another kind or amount, ObjectNotFound for an unknown organization.
    """
    rule = CREDIT_RULES[kind].grant
    require_permission(rule, actor)
    check_once(amount_nanos, idempotency_key)
    if expires_at is not None:
        may_add_expiry()
    hold_balance(organization_id, now=now)
    before = grant_by_key(organization_id, idempotency_key)
    if before is not None:
        return _the_same(before, kind, amount_nanos)
    grant = open_grant(
        rule=rule, organization_id=organization_id, kind=kind, amount_nanos=amount_nanos,
        idempotency_key=idempotency_key, actor=actor, reason=reason, now=now,
        expires_at=expires_at,
    )  # fmt: skip
    allocate([organization_id], now=now)
    values = plain_values({"kind": kind, "expires_at": expires_at})
    _record(actor, "credit.grant", grant, amount_nanos, **values)
    return grant


def hold_balance(organization_id: str, *, now: datetime) -> int:
    """Lock an organization's balance, catch its postings up, and return the balance's row id.

    Every change of what funds a balance begins so. Raises ObjectNotFound.
    """
    row = open_balance(organization_id)
    if row is None:
        raise ObjectNotFound("There is no such organization.")
    lock_budgets([row])
    post_unposted([organization_id], now=now)
    return row


def open_grant(
    *,
    rule: PostingRule,
    organization_id: str,
    amount_nanos: int,
    idempotency_key: str,
    actor: Actor,
    reason: str,
    now: datetime,
    kind: GrantKind = GrantKind.PREPAID,
    expires_at: datetime | None = None,
) -> CreditGrant:
    """Make a grant with its account, and move the amount there by a rule of one account a side."""
    grant_id = new_grant_id()
    accounts = post(
        rule,
        organization_id=organization_id,
        legs=transfer(rule, amount_nanos, grant_id),
        grant=grant_id,
        now=now,
    )
    return CreditGrant.objects.create(
        id=grant_id,
        organization_id=organization_id,
        kind=kind,
        amount_nanos=amount_nanos,
        account_id=accounts[AccountKey(organization_id, CREDIT_RULES[kind].account, grant_id)],
        expires_at=expires_at,
        idempotency_key=idempotency_key,
        reason=reason,
        granted_by=actor.name,
        granted_at=now,
    )


def expire_grants(*, now: datetime) -> int:
    """Take back what is left of grants past their time; return how many were closed.

    Safe to run twice at once. What leases granted before still hold goes when they close, and a
    busy balance is left for the next run.
    """
    closed = 0
    for grant in grants_to_expire(now):
        try:
            with waiting_at_most(BEAT_WAIT_MILLISECONDS):
                closed += expire_grant(
                    grant_id=grant.id, organization_id=grant.organization_id, now=now
                )
        except BusyError:
            logger.warning("grant_busy", grant_id=grant.id)
    return closed


@transaction.atomic
def expire_grant(*, grant_id: str, organization_id: str, now: datetime) -> bool:
    """Take back what is left of one grant past its time; return whether that closed it.

    It waits for what leases granted before still hold, and for charges that are still on their way
    into the ledger; later ones undo the expiry as far as they need.
    """
    row = hold_balance(organization_id, now=now)
    grant = grant_with_account(grant_id)
    if grant.closed_at is not None or grant.expires_at is None or grant.expires_at > now:
        return False
    remaining_nanos = grant.remaining_nanos
    waited_for_nanos = held_since_before(row, grant.expires_at)
    if now < grant.expires_at + FOLLOWED_WITHIN:
        waited_for_nanos += unfollowed_nanos(budget_by_row(row))
    nanos = max(remaining_nanos - waited_for_nanos, 0)
    if nanos:
        rule = CREDIT_RULES[grant.kind].expiry
        legs = transfer(rule, nanos, grant.id)
        post(rule, organization_id=organization_id, legs=legs, grant=grant.id, now=now)
        grant.expired_nanos += nanos
        expired = plain_values({"expires_at": grant.expires_at})
        _record(Actor.for_system("billing"), "credit.expire", grant, nanos, **expired)
    if nanos == remaining_nanos:
        grant.closed_at = now
    grant.save(update_fields=["expired_nanos", "closed_at"])
    return grant.closed_at is not None


@transaction.atomic
def reverse_grant(*, actor: Actor, grant_id: str, reason: str, now: datetime) -> int:
    """Take back what is left of a grant that was given by mistake; return the nanos taken.

    Raises NotPermitted, ObjectNotFound, Conflict when it is reversed or closed already.
    """
    require_permission(PREPAID_REVERSAL, actor)
    organization_id = grant_with_account(grant_id).organization_id
    hold_balance(organization_id, now=now)
    grant = grant_with_account(grant_id)
    if grant.closed_at is not None:
        raise Conflict(f"The grant is already {grant.state(now)}.")
    nanos = grant.remaining_nanos
    if nanos:
        rules = CREDIT_RULES[grant.kind]
        funding = funding_account(rules.grant.source_of(grant=grant.id))
        legs = [Leg(rules.account, nanos, grant.id), Leg(funding, -nanos)]
        post(
            rules.reversal,
            organization_id=organization_id,
            legs=legs,
            grant=grant.id,
            now=now,
        )
    grant.reversed_at = grant.closed_at = now
    grant.save(update_fields=["reversed_at", "closed_at"])
    _record(actor, "credit.reverse", grant, nanos, why=reason)
    return nanos


def _the_same(grant: CreditGrant, kind: GrantKind, amount_nanos: int) -> CreditGrant:
    if (grant.kind, grant.amount_nanos) != (kind, amount_nanos):
        raise Conflict(
            f"{grant.idempotency_key!r} named a {grant.kind} grant of {grant.amount_nanos} nanos.",
            param="idempotency_key",
            code="idempotency_conflict",
        )
    return grant


def check_once(amount_nanos: int, idempotency_key: str) -> None:
    """Raise InvalidValue for an amount that is no amount, or a name that names nothing once."""
    if not 0 < amount_nanos <= GRANT_MAX_NANOS:
        wanted = f"more than 0 and at most {GRANT_MAX_NANOS}"
        raise InvalidValue(
            f"amount_nanos is {amount_nanos}; wanted {wanted}.", param="amount_nanos"
        )
    if not 0 < len(idempotency_key) <= KEY_MAX:
        message = f"idempotency_key has {len(idempotency_key)} characters; wanted 1 to {KEY_MAX}."
        raise InvalidValue(message, param="idempotency_key")


def require_same(idempotency_key: str, before: int, now: int) -> None:
    """Raise Conflict where a key came with another amount (nanos) before."""
    if before != now:
        raise Conflict(
            f"{idempotency_key!r} named an amount of {before} nanos before, not {now}.",
            param="idempotency_key",
            code="idempotency_conflict",
        )


def _record(actor: Actor, action: str, grant: CreditGrant, nanos: int, **details: object) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind="credit_grant",
        target_id=grant.id,
        target_name=f"{grant.get_kind_display()} {exact_dollars(grant.amount_nanos)}",
        organization_id=grant.organization_id,
        details={"nanos": nanos, "reason": grant.reason, **details},
    )
