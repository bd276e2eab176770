"""Queries about identity providers, domains, SCIM users and groups."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from allauth.account.models import EmailAddress
from django.db.models import QuerySet

from control.accounts.models import User
from control.audit.models import AuditEvent
from control.audit.selectors import EventFilters, events
from control.db.models import get_or_not_found
from control.organizations.models import Membership, Organization
from control.sso.models import ScimGroup, ScimToken, ScimUser, SsoConnection, SsoDomain, SsoIdentity

LOG_MAX = 20
REFUSALS_MAX = 20
"""Limit of recorded events a minute, since anybody may attempt to sign in."""


def domain_of(email: str) -> str:
    """Return the domain of an address, in lower case."""
    return email.rpartition("@")[2].lower()


def connection(organization: Organization) -> SsoConnection:
    """Return an organization's connection, or an unsaved one if none is set up."""
    found = SsoConnection.objects.filter(organization=organization).first()
    return found or SsoConnection(organization=organization)


def locked_connection(organization: Organization) -> SsoConnection:
    """Return an organization's connection with its row locked, creating it if needed."""
    rows = SsoConnection.objects.select_for_update(no_key=True)
    return rows.get_or_create(organization=organization)[0]


def connection_by_id(organization_id: str) -> SsoConnection:
    """Return the connection that is set up for an organization. Raises ObjectNotFound."""
    rows = SsoConnection.objects.select_related("organization").exclude(protocol="")
    return get_or_not_found(rows, "sign-in", organization_id=organization_id)


def connection_for(email: str) -> SsoConnection | None:
    """Return the connection of an address's domain, None if nobody verified the domain."""
    rows = SsoConnection.objects.select_related("organization").exclude(protocol="")
    return rows.filter(
        organization__sso_domains__name=domain_of(email),
        organization__sso_domains__verified_at__isnull=False,
    ).first()


def is_enforced_for(email: str) -> bool:
    """Return whether an address may sign in only with its organization's provider."""
    found = connection_for(email)
    return found is not None and found.is_enforced


def is_operators(email: str) -> bool:
    """Return whether an address is an operator's."""
    return User.objects.filter(email=email.lower()).exclude(operator_role="").exists()


def enforcing(user: User) -> set[str]:
    """Return the ids of the organizations whose SSO a user must sign in with: it is enforced for
    the domain of one of their addresses, or they are a member who signed in with it before.
    Operators are exempt."""
    if user.operator_role:
        return set()
    addresses = EmailAddress.objects.filter(user=user).values_list("email", flat=True)
    connections = map(connection_for, {user.email, *addresses})
    identities = SsoIdentity.objects.filter(user=user, organization__memberships__user=user)
    enforced = identities.filter(organization__sso__is_enforced=True)
    return {
        *(each.organization_id for each in connections if each is not None and each.is_enforced),
        *enforced.values_list("organization_id", flat=True),
    }


def token_owner(domain_name: str) -> SsoDomain | None:
    """Return the verified row of a domain, of any organization, locked until the transaction
    ends."""
    rows = SsoDomain.objects.select_for_update(no_key=True).filter(verified_at__isnull=False)
    return rows.filter(name=domain_name).first()


def domains(organization: Organization) -> QuerySet[SsoDomain]:
    """Return the domains of an organization, by name."""
    return SsoDomain.objects.filter(organization=organization).order_by("name")


def domain(organization: Organization, domain_id: str) -> SsoDomain:
    """Return one domain with its row locked until the transaction ends. Raises ObjectNotFound."""
    rows = domains(organization).select_for_update(no_key=True)
    return get_or_not_found(rows, "domain", id=domain_id)


def named_domain(organization: Organization, domain_id: str) -> SsoDomain:
    """Return one domain, without a lock. Raises ObjectNotFound."""
    return get_or_not_found(domains(organization), "domain", id=domain_id)


def verified_domains(organization: Organization) -> set[str]:
    """Return the names of an organization's verified domains."""
    return set(
        domains(organization).filter(verified_at__isnull=False).values_list("name", flat=True)
    )


def is_own(organization: Organization, user: User) -> bool:
    """Return whether a user's address is of one of the organization's verified domains."""
    return domain_of(user.email) in verified_domains(organization)


def people_of(domain_names: Iterable[str]) -> list[User]:
    """Return the users with an address of one of the domains, without operators, by address."""
    user_ids: set[str] = set()
    for name in domain_names:
        users = User.objects.filter(email__endswith=f"@{name}", operator_role="")
        user_ids.update(users.values_list("id", flat=True))
    return list(User.objects.filter(id__in=user_ids).order_by("email"))


def users_who_came(organization: Organization) -> set[str]:
    """Return the ids of users who signed in with the organization's provider."""
    rows = SsoIdentity.objects.filter(organization=organization)
    return set(rows.values_list("user_id", flat=True))


def membership_of(organization: Organization, user: User) -> Membership | None:
    """Return a user's membership, None if there is none."""
    rows = Membership.objects.select_related("organization", "user")
    return rows.filter(organization=organization, user=user).first()


def mapped_values(
    organization: Organization, user: User, values: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    """Return the values that decide a user's role: those of the claim, and the names of SCIM
    groups. None means that neither decides it."""
    row = scim_users(organization).filter(user=user).first()
    if row is None:
        return values
    return (*(values or ()), *(group.display_name for group in row.groups.all()))


def denials_are_many(organization: Organization, now: datetime) -> bool:
    """Return whether `REFUSALS_MAX` events were recorded within the last minute."""
    filters = EventFilters(about="sso", start=now - timedelta(minutes=1))
    return len(events(organization.id, filters=filters, limit=REFUSALS_MAX)) == REFUSALS_MAX


def identity(organization: Organization, subject: str) -> SsoIdentity | None:
    """Return the identity of a subject at the organization's provider."""
    rows = SsoIdentity.objects.select_related("user")
    return rows.filter(organization=organization, subject=subject).first()


def identity_of(organization: Organization, user: User) -> SsoIdentity | None:
    """Return a user's identity at the organization's provider."""
    return SsoIdentity.objects.filter(organization=organization, user=user).first()


def scim_token(organization: Organization) -> ScimToken | None:
    """Return an organization's SCIM token, None if SCIM is not enabled."""
    return ScimToken.objects.select_related("heir__user").filter(organization=organization).first()


def scim_token_by_digest(digest: str) -> ScimToken | None:
    return ScimToken.objects.select_related("organization").filter(digest=digest).first()


def scim_users(organization: Organization) -> QuerySet[ScimUser]:
    """Return the SCIM users of an organization, oldest first."""
    rows = ScimUser.objects.select_related("user").prefetch_related("groups")
    return rows.filter(organization=organization).order_by("created_at", "id")


def scim_user(organization: Organization, scim_user_id: str) -> ScimUser:
    """Return one SCIM user. Raises ObjectNotFound."""
    return get_or_not_found(scim_users(organization), "user", id=scim_user_id)


def is_suspended(organization: Organization, user: User) -> bool:
    """Return whether SCIM suspended a user."""
    return ScimUser.objects.filter(organization=organization, user=user, is_active=False).exists()


def scim_groups(organization: Organization) -> QuerySet[ScimGroup]:
    """Return the SCIM groups of an organization, oldest first."""
    rows = ScimGroup.objects.prefetch_related("members")
    return rows.filter(organization=organization).order_by("created_at", "id")


def scim_group(organization: Organization, group_id: str) -> ScimGroup:
    """Return one SCIM group. Raises ObjectNotFound."""
    return get_or_not_found(scim_groups(organization), "group", id=group_id)


def last_events(organization: Organization) -> list[AuditEvent]:
    """Return the latest sign-ins, refusals and changes by SSO and SCIM, newest first."""
    latest = [
        event
        for about in ("sso", "scim")
        for event in events(organization.id, filters=EventFilters(about=about), limit=LOG_MAX)
    ]
    return sorted(latest, key=lambda event: -event.pk)[:LOG_MAX]


def may_be_opened(user: User) -> bool:
    """Return whether a customer's provider may sign a user in: not an operator or an inactive
    user."""
    return user.is_active and not user.operator_role
