"""Promotional codes: made by operators, redeemed by people, once each."""

from datetime import datetime, timedelta

from django.db import IntegrityError, transaction

from billing.credit.models import GrantKind
from billing.credit.services.grants import GRANT_MAX_NANOS, grant_credit
from billing.payments.models import PromotionalCode, Redemption
from billing.payments.models.codes import CODE_MAX
from billing.payments.selectors import has_redeemed, promotional_code
from control.accounts.models import User, has_verified_email, locked_user
from control.audit import services as audit
from control.db.row_changes import snapshot
from control.errors import Conflict, InvalidValue, ObjectNotFound
from control.organizations.models import Organization
from control.organizations.selectors import membership
from control.permissions import Actor, Permission, require, require_operator

CREDIT_DAYS_MAX = 3_650


def make_code(
    *,
    code: str,
    amount_nanos: int,
    actor: Actor,
    now: datetime,
    credit_days: int | None = None,
    expires_at: datetime | None = None,
    redemptions_max: int | None = None,
) -> PromotionalCode:
    """Make a code worth credit. Raises NotPermitted, InvalidValue naming the field, Conflict for
    one there is already."""
    require_operator(actor, Permission.FINANCE_WRITE)
    word = spelled(code)
    if not (0 < len(word) <= CODE_MAX and word.replace("-", "").isalnum() and word.isascii()):
        wanted = f"1 to {CODE_MAX} letters, digits and hyphens"
        raise InvalidValue(f"code is {code!r}; wanted {wanted}.", param="code")
    if not 0 < amount_nanos <= GRANT_MAX_NANOS:
        wanted = f"more than 0 and at most {GRANT_MAX_NANOS}"
        raise InvalidValue(
            f"amount_nanos is {amount_nanos}; wanted {wanted}.", param="amount_nanos"
        )
    if credit_days is not None and not 0 < credit_days <= CREDIT_DAYS_MAX:
        wanted = f"1 to {CREDIT_DAYS_MAX}"
        raise InvalidValue(f"credit_days is {credit_days}; wanted {wanted}.", param="credit_days")
    if expires_at is not None and expires_at <= now:
        said = expires_at.isoformat()
        raise InvalidValue(f"expires_at is {said}; wanted a future time.", param="expires_at")
    try:
        with transaction.atomic():
            made = PromotionalCode.objects.create(
                code=word,
                amount_nanos=amount_nanos,
                credit_days=credit_days,
                expires_at=expires_at,
                redemptions_max=redemptions_max,
                created_by=actor.name,
                created_at=now,
            )
            _record(actor, "code.make", made, "")
    except IntegrityError:
        raise Conflict(f"The code {word} already exists.", param="code") from None
    return made


@transaction.atomic
def end_code(*, code: str, actor: Actor, now: datetime) -> PromotionalCode:
    """Let nobody redeem a code from now on. Raises NotPermitted, ObjectNotFound, Conflict."""
    require_operator(actor, Permission.FINANCE_WRITE)
    found = promotional_code(spelled(code))
    if found is None:
        raise ObjectNotFound("There is no such code.")
    if found.ended_at is not None:
        raise Conflict("The code has already ended.")
    found.ended_at = now
    found.save(update_fields=["ended_at"])
    _record(actor, "code.end", found, "")
    return found


@transaction.atomic
def redeem_code(*, organization: Organization, user: User, code: str, now: datetime) -> Redemption:
    """Give a person's organization the credit of a code: once per person and code.

    Raises NotPermitted for who may not pay there, InvalidValue for a word that is no code (any
    more), Conflict for one that this person used, and for who has no verified address.
    """
    actor = Actor.for_member(membership(user, organization.id))
    require(actor, organization.id, Permission.BILLING_WRITE)
    if not has_verified_email(user):
        raise Conflict("Verify your email address first.", code="address_not_verified")
    locked_user(user.pk)
    found = promotional_code(spelled(code))
    if found is None or not _is_valid(found, now):
        raise InvalidValue("This code is not valid or has ended.", param="code")
    if has_redeemed(found.code, user.pk):
        raise Conflict("You have used this code already.", param="code", code="code_used")
    days = found.credit_days
    grant = grant_credit(
        organization_id=organization.id,
        kind=GrantKind.PROMOTIONAL,
        amount_nanos=found.amount_nanos,
        idempotency_key=f"code:{found.code}:{user.pk}"[:100],
        actor=Actor.for_system("promotional code"),
        reason=f"Code {found.code}",
        now=now,
        expires_at=None if days is None else now + timedelta(days=days),
    )
    found.redemption_count += 1
    found.save(update_fields=["redemption_count"])
    _record(actor, "code.redeem", found, organization.id)
    return Redemption.objects.create(
        code=found,
        user_id=user.pk,
        organization_id=organization.id,
        grant=grant,
        redeemed_at=now,
    )


def spelled(code: str) -> str:
    """Return a code as it is kept, however it was typed."""
    return code.strip().upper()


def _is_valid(code: PromotionalCode, now: datetime) -> bool:
    is_over = code.ended_at is not None or (code.expires_at is not None and code.expires_at <= now)
    is_used_up = code.redemptions_max is not None and code.redemption_count >= code.redemptions_max
    return not (is_over or is_used_up)


def _record(actor: Actor, action: str, code: PromotionalCode, organization_id: str) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind="promotional_code",
        target_id=code.code,
        target_name=code.code,
        organization_id=organization_id,
        details={
            "nanos": code.amount_nanos,
            **snapshot(code, ("credit_days", "expires_at", "redemptions_max")),
        },
    )
