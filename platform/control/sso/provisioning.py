"""Accounts, memberships and roles, as an identity provider's assertions grant them."""

from collections.abc import Iterable
from dataclasses import dataclass

from allauth.account.models import EmailAddress
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.utils import timezone

from control.accounts.models import EMAIL_MAX, NAME_MAX, User, user_by_email
from control.audit import services as audit
from control.errors import Conflict, InvalidValue, NotPermitted, ServiceError
from control.organizations.members import change_role, remove_member
from control.organizations.models import Membership, Organization
from control.permissions import Actor, Permission, Role, can
from control.sso import selectors
from control.sso.models import GRANTABLE, SUBJECT_MAX, SsoConnection, SsoIdentity
from control.sso.reclaim import close_to_its_maker, end_sessions, reclaim

REFUSALS_SHOWN = 200
"""Longest reason that is shown, in characters."""


@dataclass(frozen=True, slots=True)
class IdentityAssertion:
    """A provider's statement about a person. `values` are those of the role claim, None if the
    provider does not decide roles."""

    subject: str
    email: str
    values: tuple[str, ...] | None = None
    name: str = ""


@transaction.atomic
def sign_in(*, connection: SsoConnection, vouched: IdentityAssertion) -> User:
    """Return the user of an assertion, with an account and a membership. Raises ServiceError with a
    message for the person.

    The subject is fixed at the first sign-in, so that a new address does not make a person another
    user.
    """
    connection = selectors.locked_connection(connection.organization)
    organization = connection.organization
    subject = vouched.subject
    if not subject or len(subject) > SUBJECT_MAX or not subject.isprintable():
        raise NotPermitted("The provider did not say who you are.")
    address = own_address(organization, vouched.email)
    identity = selectors.identity(organization, subject)
    if identity is not None:
        user = identity.user
        own_address(organization, user.email)
        if not selectors.may_be_opened(user):
            raise NotPermitted("You cannot sign in to this account with SSO.")
    else:
        user = account(organization, address, name=vouched.name)
        if selectors.identity_of(organization, user) is not None:
            raise NotPermitted(
                f"{address} signed in before as another person at the provider. An owner can unlink"
                " the earlier sign-in on the SSO page."
            )
        identity = SsoIdentity(organization=organization, user=user, subject=subject)
    if selectors.is_suspended(organization, user):
        raise NotPermitted(f"{organization.name} suspended this account.")
    role = _give_membership(connection, user, vouched)
    identity.last_used_at = timezone.now()
    identity.save()
    if role == Role.OWNER and not connection.is_tried:
        connection.is_tried = True
        connection.save(update_fields=["is_tried"])
    _record(_user_actor(user, organization), "sso.logged_in", user, organization, role=role)
    return user


def _give_membership(connection: SsoConnection, user: User, vouched: IdentityAssertion) -> str:
    """Create or update the membership; return its role. Raises NotPermitted if there is no role."""
    organization = connection.organization
    current = selectors.membership_of(organization, user)
    values = selectors.mapped_values(organization, user, vouched.values)
    role = effective_role(connection, values, current.role if current else None)
    if not role:
        raise NotPermitted(f"Your provider does not give you a role in {organization.name}.")
    actor = provider(organization, "SSO", Role.ADMIN)
    ensure_membership(actor=actor, organization=organization, user=user, role=role)
    return role


def deny(*, organization: Organization, who: str, reason: ServiceError) -> None:
    """Record a denied sign-in and its reason in the audit log, unless the last minute has many
    events."""
    if selectors.denials_are_many(organization, timezone.now()):
        return
    actor = provider(organization, "SSO", Role.VIEWER)
    _record(
        actor,
        "sso.login_denied",
        organization,
        organization,
        email=who,
        reason=reason_text(reason),
    )


def reason_text(reason: ServiceError) -> str:
    """Return a reason that is safe to show: it may contain text of the provider."""
    return "".join(character for character in reason.message if character.isprintable())[
        :REFUSALS_SHOWN
    ]


def _user_actor(user: User, organization: Organization) -> Actor:
    return Actor(
        kind="user", id=user.id, name=user.email, user_id=user.id, organization_id=organization.id
    )


def _record(
    actor: Actor,
    action: str,
    target: User | Organization,
    organization: Organization,
    **details: object,
) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind="user" if isinstance(target, User) else "organization",
        target_id=target.id,
        target_name=target.email if isinstance(target, User) else target.name,
        organization_id=organization.id,
        details=details,
    )


def provider(organization: Organization, name: str, role: Role) -> Actor:
    """Return an organization's provider as an actor in the organization."""
    return Actor(
        kind="system",
        id=organization.id,
        name=name,
        organization_id=organization.id,
        role=role,
    )


def own_address(organization: Organization, email: str) -> str:
    """Return an address of one of the organization's verified domains, in lower case.

    Raises InvalidValue for an invalid address, NotPermitted for one of another domain.
    """
    address = email.strip().lower()
    try:
        validate_email(address)
    except ValidationError as error:
        raise InvalidValue("The provider sent no email address.") from error
    if len(address) > EMAIL_MAX or not address.isascii():
        raise InvalidValue("The provider sent an email address that is not valid.")
    name = selectors.domain_of(address)
    if name not in selectors.verified_domains(organization):
        raise NotPermitted(f"{name} is not a verified domain of {organization.name}.")
    return address


def account(
    organization: Organization, email: str, *, name: str = "", external_id: str = ""
) -> User:
    """Return the user with an address of the organization, creating one if needed. `external_id`
    is SCIM's.

    The owner of a domain owns its addresses, so an account with an address that nobody verified
    loses its creator's credentials, unless it has a membership here, and the account of a person
    whom SCIM removed gives the address up. Raises NotPermitted for an operator's account, Conflict
    if the address belongs to an account with another address.
    """
    address = own_address(organization, email)
    actor = provider(organization, "identity provider", Role.ADMIN)
    reclaim(actor, organization, address, external_id=external_id)
    user = user_by_email(address)
    verified = EmailAddress.objects.filter(email__iexact=address, verified=True).first()
    if verified is not None and verified.user_id != (user and user.pk):
        raise Conflict(f"{address} belongs to an account with another address.")
    if user is None:
        user = _new_account(address, name)
    elif not selectors.may_be_opened(user):
        raise NotPermitted("You cannot sign in to this account with SSO.")
    elif verified is None and selectors.membership_of(organization, user) is None:
        close_to_its_maker(user)
    if verified is None:
        EmailAddress.objects.update_or_create(
            user=user, email=address, defaults={"verified": True, "primary": True}
        )
    return user


def _new_account(address: str, name: str) -> User:
    """Create an account without a password. Raises Conflict if one was created concurrently."""
    user_name = name[:NAME_MAX] if name.isprintable() else ""
    try:
        with transaction.atomic():
            return User.objects.create_user(address, name=user_name)
    except IntegrityError as error:
        raise Conflict("This account was just created. Try again.") from error


def ensure_membership(
    *, actor: Actor, organization: Organization, user: User, role: str
) -> Membership:
    """Create a membership with a role, or change the role of the existing one."""
    membership = selectors.membership_of(organization, user)
    if membership is not None:
        if membership.role == role:
            return membership
        return change_role(actor=actor, membership=membership, role=role)
    membership = Membership.objects.create(organization=organization, user=user, role=role)
    audit.record(
        actor=actor,
        action="member.joined",
        target_kind="membership",
        target_id=membership.id,
        target_name=user.email,
        organization_id=organization.id,
        details={"email": user.email, "role": role},
    )
    return membership


def end_membership(*, actor: Actor, organization: Organization, user: User) -> None:
    """Remove a user's membership, if any; their keys go to SCIM's transfer target or end. Their
    sessions end at once if the organization owns their address. Raises Conflict for the last
    owner."""
    membership = selectors.membership_of(organization, user)
    if membership is not None:
        remove_member(
            actor=actor, membership=membership, heir=_transfer_target(organization, membership)
        )
    if selectors.is_own(organization, user) and selectors.may_be_opened(user):
        end_sessions(user)


def _transfer_target(organization: Organization, membership: Membership) -> Membership | None:
    token = selectors.scim_token(organization)
    target = token.heir if token else None
    if target is None or target == membership or not can(target.role, Permission.API_KEYS_WRITE):
        return None
    return target


def mapped_role(connection: SsoConnection, values: Iterable[str]) -> str:
    """Return the role for values of the claim and names of groups, empty for none.

    Worked example: the map {"eng": "developer", "it": "admin"} makes a member of both an admin.
    """
    mapped = {connection.role_map.get(value) for value in values}
    roles = [str(role) for role in GRANTABLE if role in mapped]
    return roles[0] if roles else connection.default_role


def effective_role(
    connection: SsoConnection, values: Iterable[str] | None, current: str | None
) -> str:
    """Return the role of a membership, empty for none. `values` is None if the provider does not
    decide roles, `current` is None without a membership. An owner stays one: only owners make and
    unmake owners."""
    if current == Role.OWNER:
        return current
    if values is None or not connection.role_map:
        return current or connection.default_role
    return mapped_role(connection, values)
