"""What an operator puts right: money paid back, a debt given up, revenue returned.

Each is made once per organization and idempotency key: the key is part of the name that its ledger
transaction has. A repeat does nothing; with another amount it is a Conflict.
"""

from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from billing.credit.models import CreditGrant
from billing.credit.selectors import (
    budget_by_row,
    grant_by_key,
    owed_nanos,
    refundable_grants,
)
from billing.credit.services.budgets import recall
from billing.credit.services.grants import (
    check_once,
    hold_balance,
    open_grant,
    require_same,
)
from billing.credit.signals import receivables_changed
from billing.ledger.causes import (
    CREDIT_RULES,
    GOODWILL_FOR_DEBT,
    GOODWILL_INTO_CREDIT,
    REFUND,
    WRITE_OFF,
    AccountKind,
    require_permission,
)
from billing.ledger.post import Leg, post, transfer
from billing.ledger.selectors import balance_nanos, posted_nanos
from control.audit import services as audit
from control.errors import Conflict
from control.organizations.selectors import organization_name
from control.permissions import Actor
from serving.contract.money import exact_dollars


class HeldByGateways(Conflict):
    """The credit is there, but gateways hold part of it for requests: it comes back once they are
    asked for it."""

    code = "credit_is_held"


@dataclass(frozen=True, slots=True)
class CreditNote:
    """What became of revenue given back: debt settled, and credit for the rest."""

    settled_nanos: int
    grant: CreditGrant | None


@transaction.atomic
def refund(
    *,
    organization_id: str,
    amount_nanos: int,
    idempotency_key: str,
    actor: Actor,
    reason: str,
    now: datetime,
    tax_nanos: int = 0,
) -> None:
    """Pay prepaid credit back, with the tax that was paid on it: never more credit than is left of
    it and not held by gateways.

    Raises NotPermitted, InvalidValue, ObjectNotFound, Conflict for more than is left or a key used
    before, and HeldByGateways where it is left, but not free.
    """
    require_permission(REFUND, actor)
    check_once(amount_nanos, idempotency_key)
    row = hold_balance(organization_id, now=now)
    source = REFUND.source_of(organization=organization_id, key=idempotency_key)
    if _is_repeat(source, idempotency_key, amount_nanos + tax_nanos):
        return
    grants = refundable_grants(organization_id, now)
    budget = budget_by_row(row)
    left = min(sum(grant.remaining_nanos for grant in grants), budget.balance_nanos)
    _require_at_most(amount_nanos, left, "can be refunded")
    if amount_nanos > budget.balance_nanos - budget.pending_nanos:
        held = exact_dollars(budget.pending_nanos)
        raise HeldByGateways(f"Gateways hold {held} of it for requests.", param="amount_nanos")
    tax = Leg(AccountKind.TAX_PAYABLE, tax_nanos)
    cash = Leg(AccountKind.CASH, -amount_nanos - tax_nanos)
    legs = [*drawn_from(grants, amount_nanos), tax, cash]
    post(REFUND, organization_id=organization_id, legs=legs, key=idempotency_key, now=now)
    _record(
        actor, "credit.refund", organization_id, amount_nanos, reason=reason, key=idempotency_key
    )


def refund_or_recall(
    *,
    organization_id: str,
    amount_nanos: int,
    idempotency_key: str,
    actor: Actor,
    reason: str,
    now: datetime,
) -> None:
    """Refund by hand; what gateways hold is called back, and whoever asks is told to ask again.

    Raises as `refund` does. In no transaction of the caller's: the recall outlives the refusal.
    """
    try:
        refund(
            organization_id=organization_id,
            amount_nanos=amount_nanos,
            idempotency_key=idempotency_key,
            actor=actor,
            reason=reason,
            now=now,
        )
    except HeldByGateways as held:
        recall_held(organization_id, now=now)
        words = f"{held.message} It was recalled. Try again in a few seconds."
        raise HeldByGateways(words, param=held.param) from held


@transaction.atomic
def recall_held(organization_id: str, *, now: datetime) -> None:
    """Call back what gateways hold of a balance."""
    recall(hold_balance(organization_id, now=now), now=now)


@transaction.atomic
def write_off(
    *,
    organization_id: str,
    amount_nanos: int,
    idempotency_key: str,
    actor: Actor,
    reason: str,
    now: datetime,
) -> None:
    """Give up a debt that will not be paid: the balance rises by it.

    Raises NotPermitted, InvalidValue, ObjectNotFound, and Conflict for more than is owed or a key
    used before.
    """
    require_permission(WRITE_OFF, actor)
    check_once(amount_nanos, idempotency_key)
    hold_balance(organization_id, now=now)
    source = WRITE_OFF.source_of(organization=organization_id, key=idempotency_key)
    if _is_repeat(source, idempotency_key, amount_nanos):
        return
    _require_at_most(amount_nanos, owed_nanos(organization_id), "is owed")
    legs = transfer(WRITE_OFF, amount_nanos)
    post(WRITE_OFF, organization_id=organization_id, legs=legs, key=idempotency_key, now=now)
    receivables_changed.send(None, organization_ids=[organization_id], now=now)
    _record(
        actor, "credit.write_off", organization_id, amount_nanos, reason=reason, key=idempotency_key
    )


@transaction.atomic
def issue_credit_note(
    *,
    organization_id: str,
    amount_nanos: int,
    idempotency_key: str,
    actor: Actor,
    reason: str,
    now: datetime,
) -> CreditNote:
    """Give revenue back: it settles the debt first, the rest becomes prepaid credit.

    Worked example: 50 against a debt of 20 settles 20 and grants 30; the balance rises by 50.
    Raises NotPermitted, InvalidValue, ObjectNotFound, and Conflict for more than was ever earned of
    the organization, or a key used before with another amount.
    """
    require_permission(GOODWILL_INTO_CREDIT, actor)
    check_once(amount_nanos, idempotency_key)
    hold_balance(organization_id, now=now)
    source = GOODWILL_FOR_DEBT.source_of(organization=organization_id, key=idempotency_key)
    before = _issued(organization_id, source, idempotency_key)
    if before is not None:
        granted_nanos = before.grant.amount_nanos if before.grant else 0
        require_same(idempotency_key, before.settled_nanos + granted_nanos, amount_nanos)
        return before
    earned_nanos = -balance_nanos(organization_id, AccountKind.REVENUE)
    _require_at_most(amount_nanos, earned_nanos, "was charged")
    settled_nanos = min(max(owed_nanos(organization_id), 0), amount_nanos)
    if settled_nanos:
        post(
            GOODWILL_FOR_DEBT,
            organization_id=organization_id,
            legs=transfer(GOODWILL_FOR_DEBT, settled_nanos),
            key=idempotency_key,
            now=now,
        )
    grant = None
    if settled_nanos < amount_nanos:
        grant = open_grant(
            rule=GOODWILL_INTO_CREDIT, organization_id=organization_id,
            amount_nanos=amount_nanos - settled_nanos,
            idempotency_key=f"credit-note:{idempotency_key}", actor=actor, reason=reason, now=now,
        )  # fmt: skip
    receivables_changed.send(None, organization_ids=[organization_id], now=now)
    _record(actor, "credit.note", organization_id, amount_nanos, reason=reason, key=idempotency_key)
    return CreditNote(settled_nanos, grant)


def _issued(organization_id: str, source: str, idempotency_key: str) -> CreditNote | None:
    settled_nanos = posted_nanos(source)
    grant = grant_by_key(organization_id, f"credit-note:{idempotency_key}")
    if settled_nanos is None and grant is None:
        return None
    return CreditNote(settled_nanos or 0, grant)


def _is_repeat(source: str, idempotency_key: str, amount_nanos: int) -> bool:
    before = posted_nanos(source)
    if before is not None:
        require_same(idempotency_key, before, amount_nanos)
    return before is not None


def _require_at_most(amount_nanos: int, most_nanos: int, what: str) -> None:
    if amount_nanos > most_nanos:
        raise Conflict(f"Only {exact_dollars(max(most_nanos, 0))} {what}.", param="amount_nanos")


def drawn_from(grants: list[CreditGrant], nanos: int) -> list[Leg]:
    """Return what each of the grants gives of an amount, in their order, as debits."""
    legs = []
    for grant in grants:
        part = min(grant.remaining_nanos, nanos)
        if part:
            legs.append(Leg(CREDIT_RULES[grant.kind].account, part, grant.id))
            nanos -= part
    return legs


def _record(actor: Actor, action: str, organization_id: str, nanos: int, **details: str) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind="organization",
        target_id=organization_id,
        target_name=organization_name(organization_id),
        organization_id=organization_id,
        details={"nanos": nanos, **details},
    )
