"""Addresses of verified domains that an account keeps from the person whom the provider gives them
to: the account goes on without the address, so that nobody gets into somebody else's account."""

import secrets

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.db.models import Q
from django.utils import timezone

from control.accounts.models import User, locked_user
from control.accounts.signals import send_account_event
from control.organizations.members import readdress_invitations
from control.organizations.models import Organization
from control.permissions import Actor
from control.sso import selectors
from control.sso.models import RemovedScimUser, ScimUser, SsoIdentity


def record_removed(row: ScimUser) -> None:
    """Record that a provider removed a SCIM user: whoever it gives their address to next is a
    different person, unless the external id is the same."""
    RemovedScimUser.objects.update_or_create(
        organization=row.organization, user=row.user, defaults={"external_id": row.external_id}
    )


def reclaim(
    actor: Actor, organization: Organization, address: str, *, external_id: str = ""
) -> None:
    """Take an address from the accounts of people whom the provider removed. `external_id` is that
    of the person who gets the address."""
    is_theirs = Q(emailaddress__email__iexact=address, emailaddress__verified=True)
    for holder in User.objects.filter(is_theirs | Q(email=address)).distinct():
        if _has_left(organization, holder, external_id):
            _release(actor, locked_user(holder.pk), address)
            SsoIdentity.objects.filter(organization=organization, user=holder).delete()
            RemovedScimUser.objects.filter(organization=organization, user=holder).delete()


def _has_left(organization: Organization, user: User, external_id: str) -> bool:
    removed = RemovedScimUser.objects.filter(organization=organization, user=user).first()
    if removed is None or user.operator_role:
        return False
    is_same_person = bool(external_id) and external_id == removed.external_id
    return not is_same_person and selectors.membership_of(organization, user) is None


def _release(actor: Actor, user: User, address: str) -> None:
    """Leave an account with another verified address, or with one that gets no email."""
    own = EmailAddress.objects.filter(user=user)
    was_verified = own.filter(email__iexact=address, verified=True).exists()
    own.filter(email__iexact=address).delete()
    other = own.filter(verified=True).order_by("-primary", "id").first()
    if user.email == address:
        user.email = other.email.lower() if other else f"{secrets.token_hex(16)}@released.invalid"
        user.save(update_fields=["email"])
        own.update(primary=False)
        if other is not None:
            own.filter(pk=other.pk).update(primary=True)
        send_account_event(
            user, "user.email_changed", by=actor,
            before={"email": address}, after={"email": user.email},
        )  # fmt: skip
    if was_verified:
        after = user.email if other else None
        readdress_invitations(actor=actor, before=address, after=after)
    end_sessions(user)


def is_unverified(organization: Organization, user: User) -> bool:
    """Return whether somebody signed up and proved no address since, so that nobody ever used the
    account; members of the organization are known to it."""
    addresses = EmailAddress.objects.filter(user=user).values_list("verified", flat=True)
    is_unused = bool(addresses) and not any(addresses) and user.last_login is None
    is_member = selectors.membership_of(organization, user) is not None
    return is_unused and selectors.may_be_opened(user) and not is_member


def close_unverified(user: User) -> None:
    """Close an account that nobody could use, and free its address."""
    close_to_its_maker(user)
    EmailAddress.objects.filter(user=user).delete()
    user.email, user.name = f"{secrets.token_hex(16)}@unverified.invalid", ""
    user.is_active, user.erased_at = False, timezone.now()
    user.save(update_fields=["email", "name", "is_active", "erased_at"])


def close_to_its_maker(user: User) -> None:
    """Remove all credentials, other addresses and sessions of an account."""
    user.set_unusable_password()
    user.save(update_fields=["password"])
    Authenticator.objects.filter(user=user).delete()
    EmailAddress.objects.filter(user=user).exclude(email__iexact=user.email).delete()
    end_sessions(user)


def end_sessions(user: User) -> int:
    """End all sessions of a user; return how many."""
    sessions = list(UserSession.objects.filter(user=user))
    for session in sessions:
        session.end()
    return len(sessions)
