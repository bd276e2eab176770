"""The welcome credit: once for each person whose address is verified, in the transaction that makes
their first organization or verifies them, whichever comes last."""

from typing import Any

from allauth.account.signals import email_confirmed
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from billing.credit.models import GrantKind, Welcome
from billing.credit.selectors import is_welcomed
from billing.credit.services.grants import grant_credit
from control.accounts.models import User, has_verified_email, locked_user
from control.organizations.models import Organization
from control.organizations.selectors import first_owned_organization, owner
from control.organizations.signals import organization_created
from control.permissions import Actor


def listen() -> None:
    """Welcome people from now on."""
    organization_created.connect(_on_organization, dispatch_uid="billing.credit.welcome")
    email_confirmed.connect(_on_verified, dispatch_uid="billing.credit.welcome.verified")


@transaction.atomic
def welcome(user: User, organization: Organization) -> bool:
    """Grant PENSTOCK_SIGNUP_CREDIT_NANOS to a person's organization; return whether it did.

    Nothing for an address that is not verified, for who was welcomed before, or with a credit of 0.
    """
    amount_nanos, now = settings.CONFIG.signup_credit_nanos, timezone.now()
    if amount_nanos == 0 or not has_verified_email(user):
        return False
    locked_user(user.pk)
    if is_welcomed(user.pk):
        return False
    grant = grant_credit(
        organization_id=organization.id,
        kind=GrantKind.PROMOTIONAL,
        amount_nanos=amount_nanos,
        idempotency_key=f"welcome:{user.pk}",
        actor=Actor.for_system("sign-up"),
        reason="Welcome credit",
        now=now,
    )
    Welcome.objects.create(user_id=user.pk, grant=grant, given_at=now)
    return True


def _on_organization(sender: object, organization: Organization, **_: Any) -> None:
    person = owner(organization)
    if person is not None:
        welcome(person, organization)


def _on_verified(sender: object, email_address: Any, **_: Any) -> None:
    organization = first_owned_organization(email_address.user)
    if organization is not None:
        welcome(email_address.user, organization)
