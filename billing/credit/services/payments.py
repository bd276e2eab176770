"""Money received: it settles the debt first, and becomes prepaid credit then."""

from datetime import datetime

from django.db import transaction

from billing.credit.models import CreditGrant, Payment, new_payment_id
from billing.credit.selectors import owed_nanos, payment_by_key
from billing.credit.services.grants import check_once, hold_balance, open_grant, require_same
from billing.credit.signals import payment_recorded
from billing.ledger.causes import (
    PAYMENT_INTO_CREDIT,
    PAYMENT_OF_DEBT,
    PAYMENT_TAX,
    require_permission,
)
from billing.ledger.post import Posting, post_all, transfer
from control.audit import services as audit
from control.errors import InvalidValue
from control.permissions import Actor
from serving.contract.money import exact_dollars


@transaction.atomic
def record_payment(
    *,
    organization_id: str,
    amount_nanos: int,
    idempotency_key: str,
    actor: Actor,
    reason: str,
    now: datetime,
    tax_nanos: int = 0,
) -> Payment:
    """Book money that came in: tax is put aside, debt is settled, the rest is prepaid credit.

    Worked example: 119 with 19 of tax against a debt of 40 settles 40 and grants 60; the balance
    rises by 100. Repeating a call with its idempotency key returns the first payment. Raises
    NotPermitted, InvalidValue, ObjectNotFound, and Conflict when the key came with another amount
    or tax.
    """
    require_permission(PAYMENT_INTO_CREDIT, actor)
    check_once(amount_nanos, idempotency_key)
    if not 0 <= tax_nanos < amount_nanos:
        wanted = f"0 or more, and less than the amount of {amount_nanos}"
        raise InvalidValue(f"tax_nanos is {tax_nanos}; wanted {wanted}.", param="tax_nanos")
    hold_balance(organization_id, now=now)
    before = payment_by_key(organization_id, idempotency_key)
    if before is not None:
        require_same(idempotency_key, before.amount_nanos, amount_nanos)
        require_same(idempotency_key, before.tax_nanos, tax_nanos)
        return before
    net_nanos = amount_nanos - tax_nanos
    settled_nanos = min(max(owed_nanos(organization_id), 0), net_nanos)
    payment = Payment(
        id=new_payment_id(),
        organization_id=organization_id,
        amount_nanos=amount_nanos,
        tax_nanos=tax_nanos,
        settled_nanos=settled_nanos,
        idempotency_key=idempotency_key,
        reason=reason,
        recorded_by=actor.name,
        received_at=now,
    )
    payment.grant = _credit(payment, net_nanos - settled_nanos, actor, now)
    payment.save(force_insert=True)
    _record(actor, payment)
    payment_recorded.send(Payment, organization_id=organization_id, payment_id=payment.id, now=now)
    return payment


def _credit(payment: Payment, nanos: int, actor: Actor, now: datetime) -> CreditGrant | None:
    """Post the payment; return the grant of what is left of it, None for nothing."""
    parts = ((PAYMENT_OF_DEBT, payment.settled_nanos), (PAYMENT_TAX, payment.tax_nanos))
    names = {"key": payment.idempotency_key}
    postings = [
        Posting(rule, payment.organization_id, transfer(rule, part), names)
        for rule, part in parts
        if part
    ]
    post_all(postings, now=now)
    if nanos == 0:
        return None
    return open_grant(
        rule=PAYMENT_INTO_CREDIT,
        organization_id=payment.organization_id,
        amount_nanos=nanos,
        idempotency_key=f"payment:{payment.idempotency_key}",
        actor=actor,
        reason=payment.reason,
        now=now,
    )


def _record(actor: Actor, payment: Payment) -> None:
    audit.record(
        actor=actor,
        action="payment.record",
        target_kind="payment",
        target_id=payment.id,
        target_name=exact_dollars(payment.amount_nanos),
        organization_id=payment.organization_id,
        details={
            "nanos": payment.amount_nanos,
            "tax_nanos": payment.tax_nanos,
            "settled_nanos": payment.settled_nanos,
            "reason": payment.reason,
        },
    )
