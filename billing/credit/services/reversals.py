"""Payments that are taken back from us, by a customer's bank or at the payment provider, and money
that returns after all."""

from datetime import datetime

from django.db import transaction

from billing.credit.selectors import grant_by_key, owed_nanos, refundable_grants
from billing.credit.services.adjustments import drawn_from
from billing.credit.services.draws import allocate
from billing.credit.services.grants import check_once, hold_balance, open_grant
from billing.credit.signals import receivables_changed
from billing.ledger.causes import (
    DISPUTE,
    DISPUTE_WON_FOR_DEBT,
    DISPUTE_WON_INTO_CREDIT,
    DISPUTE_WON_TAX,
    REFUND_BY_PROVIDER,
    REFUND_RETURNED_FOR_DEBT,
    REFUND_RETURNED_INTO_CREDIT,
    REFUND_RETURNED_TAX,
    AccountKind,
    Cause,
    require_permission,
)
from billing.ledger.post import Leg, post, transfer
from billing.ledger.selectors import posted_nanos
from control.audit import services as audit
from control.organizations.selectors import organization_name
from control.permissions import Actor

TAKEN_BACK = {Cause.REFUND: REFUND_BY_PROVIDER, Cause.DISPUTE: DISPUTE}
RETURNED = {
    Cause.REFUND_REVERSAL: (
        REFUND_RETURNED_FOR_DEBT,
        REFUND_RETURNED_INTO_CREDIT,
        REFUND_RETURNED_TAX,
    ),
    Cause.DISPUTE_REVERSAL: (DISPUTE_WON_FOR_DEBT, DISPUTE_WON_INTO_CREDIT, DISPUTE_WON_TAX),
}
"""The debt that it pays, the credit that it becomes, and its tax."""


@transaction.atomic
def take_back(
    *,
    organization_id: str,
    amount_nanos: int,
    tax_nanos: int,
    cause: Cause,
    key: str,
    actor: Actor,
    now: datetime,
) -> bool:
    """A payment is gone again: paid credit goes with it as far as it is left, the rest is owed.

    Worked example: 119 with 19 of tax go, 60 of credit are left: the credit falls to 0, 40 are
    owed, the balance falls by 100. A part so small that it is tax alone takes no credit. Once per
    cause and key; returns whether it was now. Raises NotPermitted, InvalidValue, ObjectNotFound.
    """
    rule = TAKEN_BACK[cause]
    require_permission(rule, actor)
    check_once(amount_nanos + tax_nanos, key)
    hold_balance(organization_id, now=now)
    if posted_nanos(rule.source_of(organization=organization_id, key=key)) is not None:
        return False
    drawn = drawn_from(refundable_grants(organization_id, now), amount_nanos)
    legs = [
        *drawn,
        Leg(AccountKind.ACCOUNTS_RECEIVABLE, amount_nanos - sum(leg.nanos for leg in drawn)),
        Leg(AccountKind.TAX_PAYABLE, tax_nanos),
        Leg(AccountKind.CASH, -amount_nanos - tax_nanos),
    ]
    post(rule, organization_id=organization_id, legs=legs, key=key, now=now)
    allocate([organization_id], now=now)
    receivables_changed.send(None, organization_ids=[organization_id], now=now)
    _record(actor, f"credit.{cause}", organization_id, amount_nanos, key)
    return True


@transaction.atomic
def give_back(
    *,
    organization_id: str,
    amount_nanos: int,
    tax_nanos: int,
    cause: Cause,
    key: str,
    actor: Actor,
    now: datetime,
) -> bool:
    """Money that was gone returns: it settles the debt first, the rest is paid credit again.

    Once per cause and key; returns whether it was now. Raises NotPermitted, InvalidValue,
    ObjectNotFound.
    """
    for_debt, into_credit, for_tax = RETURNED[cause]
    require_permission(into_credit, actor)
    check_once(amount_nanos + tax_nanos, key)
    hold_balance(organization_id, now=now)
    grant_key = f"{cause}:{key}"
    names = {"organization": organization_id, "key": key}
    sources = [rule.source_of(**names) for rule in (for_debt, for_tax)]
    is_given = any(posted_nanos(source) is not None for source in sources)
    if is_given or grant_by_key(organization_id, grant_key) is not None:
        return False
    settled_nanos = min(max(owed_nanos(organization_id), 0), amount_nanos)
    for rule, nanos in ((for_debt, settled_nanos), (for_tax, tax_nanos)):
        if nanos:
            legs = transfer(rule, nanos)
            post(rule, organization_id=organization_id, legs=legs, key=key, now=now)
    if settled_nanos < amount_nanos:
        open_grant(
            rule=into_credit, organization_id=organization_id,
            amount_nanos=amount_nanos - settled_nanos, idempotency_key=grant_key, actor=actor,
            reason=str(cause.label), now=now,
        )  # fmt: skip
    receivables_changed.send(None, organization_ids=[organization_id], now=now)
    _record(actor, f"credit.{cause}", organization_id, amount_nanos, key)
    return True


def _record(actor: Actor, action: str, organization_id: str, nanos: int, key: str) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind="organization",
        target_id=organization_id,
        target_name=organization_name(organization_id),
        organization_id=organization_id,
        details={"nanos": nanos, "key": key},
    )
