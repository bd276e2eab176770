"""The account, the membership and the role that an identity provider's assertion gives a person."""

from collections.abc import Iterable
from dataclasses import dataclass

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.utils import timezone

from control.accounts.models import EMAIL_MAX, NAME_MAX, User
from control.accounts.selectors import user_by_email
from control.audit import services as audit
from control.errors import Conflict, InvalidValue, NotPermitted, ServiceError
from control.organizations.members import change_role, remove_member
from control.organizations.models import Membership, Organization
from control.permissions import Actor, Permission, Role, can
from control.sso import selectors
from control.sso.models import GRANTABLE, SUBJECT_MAX, SsoConnection, SsoIdentity

REFUSALS_SHOWN = 200
"""Characters of a reason that are shown."""


@dataclass(frozen=True, slots=True)
class IdentityAssertion:
    """What a provider says of a person; `values` are those of the claim that roles are mapped by,
    None where it has no say in roles."""

    subject: str
    email: str
    values: tuple[str, ...] | None = None
    name: str = ""


@transaction.atomic
def sign_in(*, connection: SsoConnection, vouched: IdentityAssertion) -> User:
    """Return whose account a provider opens, with a seat. Raises ServiceError, in words for the
    person.

    From the first time on a person is the same subject: nobody becomes another by a new address.
    """
    connection = selectors.locked_connection(connection.organization)
    organization = connection.organization
    subject = vouched.subject
    if not subject or len(subject) > SUBJECT_MAX or not subject.isprintable():
        raise NotPermitted("The provider does not say who this is.")
    address = own_address(organization, vouched.email)
    known = selectors.identity(organization, subject)
    if known is not None:
        user = known.user
        own_address(organization, user.email)
        if not may_be_opened(user):
            raise NotPermitted("This account cannot be opened by SSO.")
    else:
        user = account(organization, address, name=vouched.name)
        if selectors.identity_of(organization, user) is not None:
            raise NotPermitted(
                f"{address} signed in as somebody else at the provider before. An owner can forget"
                " the earlier sign-in on the SSO page."
            )
        known = SsoIdentity(organization=organization, user=user, subject=subject)
    if selectors.is_suspended(organization, user):
        raise NotPermitted(f"{organization.name} suspended this account.")
    role = _give_membership(connection, user, vouched)
    known.last_used_at = timezone.now()
    known.save()
    if role == Role.OWNER and not connection.is_tried:
        connection.is_tried = True
        connection.save(update_fields=["is_tried"])
    _record(_of(user, organization), "sso.sign_in", user.id, organization, role=role)
    return user


def _give_membership(connection: SsoConnection, user: User, vouched: IdentityAssertion) -> str:
    """Give the seat that the map says; return its role. Raises NotPermitted where it says none."""
    organization = connection.organization
    current = selectors.membership_of(organization, user)
    values = selectors.mapped_values(organization, user, vouched.values)
    role = effective_role(connection, values, current.role if current else None)
    if not role:
        raise NotPermitted(f"Your provider gives you no role in {organization.name}.")
    actor = provider(organization, "SSO", Role.ADMIN)
    ensure_membership(actor=actor, organization=organization, user=user, role=role)
    return role


def deny(*, organization: Organization, who: str, reason: ServiceError) -> None:
    """Write down that nobody was let in, and why; many times a minute only the first."""
    if selectors.denials_are_many(organization, timezone.now()):
        return
    actor = provider(organization, "SSO", Role.VIEWER)
    _record(
        actor, "sso.refuse", organization.id, organization, email=who, reason=reason_text(reason)
    )


def reason_text(reason: ServiceError) -> str:
    """Return a reason as it may be shown: a provider may have put anything into it."""
    return "".join(each for each in reason.message if each.isprintable())[:REFUSALS_SHOWN]


def _of(user: User, organization: Organization) -> Actor:
    return Actor(
        kind="user", id=user.id, name=user.email, user_id=user.id, organization_id=organization.id
    )


def _record(
    actor: Actor, action: str, target_id: str, organization: Organization, **details: object
) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind="organization" if target_id == organization.id else "user",
        target_id=target_id,
        organization_id=organization.id,
        details=details,
    )


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
    user = user_by_email(address)
    verified = EmailAddress.objects.filter(email__iexact=address, verified=True).first()
    if verified is not None and verified.user_id != (user and user.pk):
        raise Conflict(f"{address} belongs to an account with another address.")
    if user is None:
        user = _new_account(address, name)
    elif not may_be_opened(user):
        raise NotPermitted("This account cannot be opened by SSO.")
    elif verified is None and selectors.membership_of(organization, user) is None:
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


def ensure_membership(
    *, actor: Actor, organization: Organization, user: User, role: str
) -> Membership:
    """Give a person a seat with a role, or the seat that they have this role."""
    seat = selectors.membership_of(organization, user)
    if seat is not None:
        if seat.role == role:
            return seat
        return change_role(actor=actor, membership=seat, role=role)
    seat = Membership.objects.create(organization=organization, user=user, role=role)
    audit.record(
        actor=actor,
        action="member.join",
        target_kind="membership",
        target_id=seat.id,
        organization_id=organization.id,
        details={"email": user.email, "role": role},
    )
    return seat


def end_membership(*, actor: Actor, organization: Organization, user: User) -> None:
    """Take a person's seat, if they have one; their keys end, or go to SCIM's heir. Their sessions
    end at once where the organization owns their address. Raises Conflict for the last owner."""
    seat = selectors.membership_of(organization, user)
    if seat is not None:
        remove_member(actor=actor, membership=seat, heir=_transfer_target(organization, seat))
    if selectors.is_own(organization, user) and may_be_opened(user):
        end_sessions(user)


def _transfer_target(organization: Organization, seat: Membership) -> Membership | None:
    access = selectors.scim_token(organization)
    heir = access.heir if access else None
    if heir is None or heir == seat or not can(heir.role, Permission.API_KEYS_WRITE):
        return None
    return heir


def mapped_role(connection: SsoConnection, values: Iterable[str]) -> str:
    """Return the role for values of the claim and names of groups, empty for none.

    Worked example: the map {"eng": "developer", "it": "admin"} makes an admin of who is in both.
    """
    mapped = {connection.role_map.get(value) for value in values}
    found = [str(role) for role in GRANTABLE if role in mapped]
    return found[0] if found else connection.default_role


def effective_role(
    connection: SsoConnection, values: Iterable[str] | None, current: str | None
) -> str:
    """Return the role of a seat, empty for none; `values` is None where the provider has no say in
    roles, `current` is None without a seat. An owner stays one: owners are made by owners."""
    if current == Role.OWNER:
        return current
    if values is None or not connection.role_map:
        return current or connection.default_role
    return mapped_role(connection, values)
