"""Payments that are taken back from us, by a customer's bank or at the payment provider, and money
that returns after all."""

from datetime import datetime

from django.db import transaction

from billing.credit.models import GrantKind
from billing.credit.selectors import grant_by_key, owed_nanos, refundable_grants
from billing.credit.services.adjustments import drawn_from
from billing.credit.services.budgets import fund
from billing.credit.services.draws import allocate
from billing.credit.services.grants import check_once, hold_balance, move, open_grant
from billing.credit.signals import receivables_changed
from billing.ledger.models import AccountKind, Cause
from billing.ledger.selectors import posted_nanos
from billing.ledger.services import Posting, Side, open_account, post
from control.audit import services as audit
from control.organizations.selectors import organization_name
from control.permissions import Actor, Permission, require_operator
from serving.contract.ids import new_id


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
    require_operator(actor, Permission.FINANCE_WRITE)
    check_once(amount_nanos + tax_nanos, key)
    row = hold_balance(organization_id, now=now)
    source = f"{cause}:{organization_id}:{key}"
    if posted_nanos(source) is not None:
        return False
    sides = drawn_from(refundable_grants(organization_id, now), amount_nanos)
    rest_nanos = amount_nanos - sum(side.nanos for side in sides)
    others = (
        (AccountKind.ACCOUNTS_RECEIVABLE, rest_nanos),
        (AccountKind.TAX_PAYABLE, tax_nanos),
        (AccountKind.CASH, -amount_nanos - tax_nanos),
    )
    sides += [Side(open_account(organization_id, kind), nanos) for kind, nanos in others if nanos]
    post([Posting(new_id(), source, cause, organization_id, tuple(sides))], now=now)
    fund(row, -amount_nanos, now=now)
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
    require_operator(actor, Permission.FINANCE_WRITE)
    check_once(amount_nanos + tax_nanos, key)
    row = hold_balance(organization_id, now=now)
    source, grant_key = f"{cause}:{organization_id}:{key}", f"{cause}:{key}"
    names = (source, f"{source}:tax")
    is_given = any(posted_nanos(name) is not None for name in names)
    if is_given or grant_by_key(organization_id, grant_key) is not None:
        return False
    cash = open_account(organization_id, AccountKind.CASH)
    settled_nanos = min(max(owed_nanos(organization_id), 0), amount_nanos)
    for kind, nanos, name in (
        (AccountKind.ACCOUNTS_RECEIVABLE, settled_nanos, names[0]),
        (AccountKind.TAX_PAYABLE, tax_nanos, names[1]),
    ):
        if nanos:
            into = open_account(organization_id, kind)
            move(
                source=name, cause=cause, organization_id=organization_id, debit_id=cash,
                credit_id=into, nanos=nanos, now=now,
            )  # fmt: skip
    if settled_nanos < amount_nanos:
        open_grant(
            organization_id=organization_id, kind=GrantKind.PREPAID,
            amount_nanos=amount_nanos - settled_nanos, funding=cash, cause=cause,
            idempotency_key=grant_key, actor=actor, reason=str(cause.label), now=now,
        )  # fmt: skip
    fund(row, amount_nanos, now=now)
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
