"""Letting in whom a provider vouches for, and giving them the seat that the role map says."""

from django.db import transaction
from django.utils import timezone

from control.actor import Actor
from control.audit import services as audit
from control.errors import NotPermitted, ServiceError
from control.sso import people, selectors
from control.sso.models import SUBJECT_MAX, Connection, Identity
from control.sso.roles import settled
from control.sso.services.seats import seat_at
from control.sso.vouching import Vouched
from control.tenants.models import Organization, Role, User

REFUSALS_SHOWN = 200
"""Characters of a reason that are shown."""


@transaction.atomic
def admit(*, connection: Connection, vouched: Vouched) -> User:
    """Return whose account a provider opens, with a seat. Raises ServiceError, in words for the
    person.

    From the first time on a person is the same subject: nobody becomes another by a new address.
    """
    connection = selectors.locked_connection(connection.organization)
    organization = connection.organization
    subject = vouched.subject
    if not subject or len(subject) > SUBJECT_MAX or not subject.isprintable():
        raise NotPermitted("The provider does not say who this is.")
    address = people.own_address(organization, vouched.email)
    known = selectors.identity(organization, subject)
    if known is not None:
        user = known.user
        people.own_address(organization, user.email)
        if not people.may_be_opened(user):
            raise NotPermitted("This account cannot be opened by SSO.")
    else:
        user = people.account(organization, address, name=vouched.name)
        if selectors.identity_of(organization, user) is not None:
            raise NotPermitted(
                f"{address} signed in as somebody else at the provider before. An owner can forget"
                " the earlier sign-in on the SSO page."
            )
        known = Identity(organization=organization, user=user, subject=subject)
    if selectors.is_suspended(organization, user):
        raise NotPermitted(f"{organization.name} suspended this account.")
    role = _seat(connection, user, vouched)
    known.last_used_at = timezone.now()
    known.save()
    if role == Role.OWNER and not connection.is_tried:
        connection.is_tried = True
        connection.save(update_fields=["is_tried"])
    _record(_of(user, organization), "sso.sign_in", user.id, organization, role=role)
    return user


def _seat(connection: Connection, user: User, vouched: Vouched) -> str:
    """Give the seat that the map says; return its role. Raises NotPermitted where it says none."""
    organization = connection.organization
    current = selectors.seat(organization, user)
    values = selectors.mapped_values(organization, user, vouched.values)
    role = settled(connection, values, current.role if current else None)
    if not role:
        raise NotPermitted(f"Your provider gives you no role in {organization.name}.")
    actor = people.provider(organization, "SSO", Role.ADMIN)
    seat_at(actor=actor, organization=organization, user=user, role=role)
    return role


def refuse(*, organization: Organization, who: str, reason: ServiceError) -> None:
    """Write down that nobody was let in, and why; many times a minute only the first."""
    if selectors.refusals_are_many(organization, timezone.now()):
        return
    actor = people.provider(organization, "SSO", Role.VIEWER)
    _record(actor, "sso.refuse", organization.id, organization, email=who, reason=words(reason))


def words(reason: ServiceError) -> str:
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
