"""What a new organization is given, in the transaction that makes it."""

from typing import Any

from django.conf import settings
from django.utils import timezone

from billing.credit.models import GrantKind
from billing.credit.services.grants import grant_credit
from control.actor import system
from control.tenants.models import Organization
from control.tenants.signals import organization_created

IDEMPOTENCY_KEY = "sign-up"


def listen() -> None:
    """Give sign-up credit to every organization from now on."""
    organization_created.connect(give_signup_credit, dispatch_uid="billing.credit.welcome")


def give_signup_credit(sender: object, organization: Organization, **_: Any) -> None:
    """Grant PENSTOCK_SIGNUP_CREDIT_NANOS, once; an amount of 0 grants nothing."""
    amount_nanos = settings.CONFIG.signup_credit_nanos
    if amount_nanos == 0:
        return
    grant_credit(
        organization_id=organization.id,
        kind=GrantKind.PROMOTIONAL,
        amount_nanos=amount_nanos,
        idempotency_key=IDEMPOTENCY_KEY,
        actor=system("sign-up"),
        reason="Welcome credit",
        now=timezone.now(),
    )
