"""Accounts that a provider may open: of addresses of domains that its organization proved, and
never an operator's."""

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction

from control.actor import Actor
from control.errors import Conflict, InvalidValue, NotPermitted
from control.sso import selectors
from control.tenants import selectors as tenants
from control.tenants.models import EMAIL_MAX, NAME_MAX, Organization, Role, User


def provider(organization: Organization, name: str, role: Role) -> Actor:
    """Return an organization's provider as an actor in it."""
    return Actor(
        kind="system",
        id=organization.id,
        name=name,
        organization_id=organization.id,
        role=role,
    )


def own_address(organization: Organization, email: str) -> str:
    """Return an address, in lower case, that the organization's provider may speak of.

    Raises InvalidValue for what is none, NotPermitted for one of a domain that it did not prove.
    """
    address = email.strip().lower()
    try:
        validate_email(address)
    except ValidationError as error:
        raise InvalidValue("The provider sent no e-mail address.") from error
    if len(address) > EMAIL_MAX or not address.isascii():
        raise InvalidValue("The provider sent no e-mail address that an account can have.")
    name = selectors.domain_of(address)
    if name not in selectors.verified_domains(organization):
        raise NotPermitted(f"{name} is no verified domain of {organization.name}.")
    return address


def account(organization: Organization, email: str, *, name: str = "") -> User:
    """Return whose account an own address is; a new one where there is none.

    Who owns the domain owns its addresses: an account that was made with one that nobody verified
    loses whatever its maker could come in by, unless it has a seat here. Raises NotPermitted for an
    operator's, Conflict for an address that belongs to an account with another.
    """
    address = own_address(organization, email)
    user = tenants.user_by_email(address)
    verified = EmailAddress.objects.filter(email__iexact=address, verified=True).first()
    if verified is not None and verified.user_id != (user and user.pk):
        raise Conflict(f"{address} belongs to an account with another address.")
    if user is None:
        user = _new_account(address, name)
    elif not may_be_opened(user):
        raise NotPermitted("This account cannot be opened by SSO.")
    elif verified is None and selectors.seat(organization, user) is None:
        close_to_its_maker(user)
    if verified is None:
        EmailAddress.objects.update_or_create(
            user=user, email=address, defaults={"verified": True, "primary": True}
        )
    return user


def _new_account(address: str, name: str) -> User:
    """Make an account that has no password. Raises Conflict where one was made meanwhile."""
    shown = name[:NAME_MAX] if name.isprintable() else ""
    try:
        with transaction.atomic():
            return User.objects.create_user(address, name=shown)
    except IntegrityError as error:
        raise Conflict("This account was made just now. Try again.") from error


def may_be_opened(user: User) -> bool:
    """Tell whether a provider of a customer's may open an account: not of who runs the platform,
    nor one that is closed."""
    return user.is_active and not user.operator_role


def close_to_its_maker(user: User) -> None:
    """Take from an account all that it could be opened by."""
    user.set_unusable_password()
    user.save(update_fields=["password"])
    Authenticator.objects.filter(user=user).delete()
    EmailAddress.objects.filter(user=user).exclude(email__iexact=user.email).delete()
    end_sessions(user)


def end_sessions(user: User) -> int:
    """End all sessions of a person at once; return how many."""
    sessions = list(UserSession.objects.filter(user=user))
    for session in sessions:
        session.end()
    return len(sessions)
