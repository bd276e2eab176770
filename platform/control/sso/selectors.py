"""Questions about identity providers, domains and whom SCIM brought."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from allauth.account.models import EmailAddress
from django.db.models import QuerySet

from control.accounts.models import User
from control.audit.models import AuditEvent
from control.audit.selectors import EventFilters, events
from control.errors import ObjectNotFound
from control.organizations.models import Membership, Organization
from control.sso.models import ScimGroup, ScimToken, ScimUser, SsoConnection, SsoDomain, SsoIdentity

LOG_MAX = 20
REFUSALS_MAX = 20
"""Deeds of a minute beyond which refusals are not written down: anybody may try to sign in."""


def domain_of(email: str) -> str:
    """Return the domain of an address, in lower case."""
    return email.rpartition("@")[2].lower()


def connection(organization: Organization) -> SsoConnection:
    """Return an organization's connection; one that is not saved where nothing is set up."""
    found = SsoConnection.objects.filter(organization=organization).first()
    return found or SsoConnection(organization=organization)


def locked_connection(organization: Organization) -> SsoConnection:
    """Return an organization's connection, its row locked until the transaction ends."""
    rows = SsoConnection.objects.select_for_update(no_key=True)
    return rows.get_or_create(organization=organization)[0]


def connection_by_id(organization_id: str) -> SsoConnection:
    """Return the connection that is set up for an organization. Raises ObjectNotFound."""
    rows = SsoConnection.objects.select_related("organization").exclude(protocol="")
    found = rows.filter(organization_id=organization_id).first()
    if found is None:
        raise ObjectNotFound("There is no such sign-in.")
    return found


def connection_for(email: str) -> SsoConnection | None:
    """Return by which connection an address signs in, None where its domain is nobody's."""
    rows = SsoConnection.objects.select_related("organization").exclude(protocol="")
    return rows.filter(
        organization__sso_domains__name=domain_of(email),
        organization__sso_domains__verified_at__isnull=False,
    ).first()


def is_enforced_for(email: str) -> bool:
    """Tell whether an address may sign in by its organization's provider only."""
    found = connection_for(email)
    return found is not None and found.is_enforced


def is_operators(email: str) -> bool:
    """Tell whether an address is one of who runs the platform."""
    return User.objects.filter(email=email.lower()).exclude(operator_role="").exists()


def enforcing(user: User) -> set[str]:
    """Return the ids of the organizations by whose provider alone a person may come in: one of
    their addresses says so, or they are a member where it is enforced and came in by it before.
    Operators come in by themselves."""
    if user.operator_role:
        return set()
    others = EmailAddress.objects.filter(user=user).values_list("email", flat=True)
    found = map(connection_for, {user.email, *others})
    came = SsoIdentity.objects.filter(user=user, organization__memberships__user=user)
    enforced = came.filter(organization__sso__is_enforced=True)
    return {
        *(each.organization_id for each in found if each is not None and each.is_enforced),
        *enforced.values_list("organization_id", flat=True),
    }


def token_owner(domain_name: str) -> SsoDomain | None:
    """Return the row by which an organization has proved a domain, locked until the transaction
    ends."""
    rows = SsoDomain.objects.select_for_update(no_key=True).filter(verified_at__isnull=False)
    return rows.filter(name=domain_name).first()


def domains(organization: Organization) -> QuerySet[SsoDomain]:
    """Return the domains of an organization, by name."""
    return SsoDomain.objects.filter(organization=organization).order_by("name")


def domain(organization: Organization, domain_id: str) -> SsoDomain:
    """Return one domain, its row locked until the transaction ends. Raises ObjectNotFound."""
    rows = domains(organization).select_for_update(no_key=True)
    return _one_domain(rows, domain_id)


def named_domain(organization: Organization, domain_id: str) -> SsoDomain:
    """Return one domain. Raises ObjectNotFound."""
    return _one_domain(domains(organization), domain_id)


def _one_domain(rows: QuerySet[SsoDomain], domain_id: str) -> SsoDomain:
    found = rows.filter(id=domain_id).first()
    if found is None:
        raise ObjectNotFound("There is no such domain.")
    return found


def verified_domains(organization: Organization) -> set[str]:
    """Return the names of the domains that an organization proved."""
    return set(
        domains(organization).filter(verified_at__isnull=False).values_list("name", flat=True)
    )


def is_own(organization: Organization, user: User) -> bool:
    """Tell whether an organization owns a person's address."""
    return domain_of(user.email) in verified_domains(organization)


def people_of(domain_names: Iterable[str]) -> list[User]:
    """Return who has an address of one of the domains, operators left out, by address."""
    found: set[str] = set()
    for name in domain_names:
        theirs = User.objects.filter(email__endswith=f"@{name}", operator_role="")
        found.update(theirs.values_list("id", flat=True))
    return list(User.objects.filter(id__in=found).order_by("email"))


def users_who_came(organization: Organization) -> set[str]:
    """Return the ids of people who signed in by the organization's provider."""
    rows = SsoIdentity.objects.filter(organization=organization)
    return set(rows.values_list("user_id", flat=True))


def membership_of(organization: Organization, user: User) -> Membership | None:
    """Return a person's seat as it is now."""
    rows = Membership.objects.select_related("organization", "user")
    return rows.filter(organization=organization, user=user).first()


def mapped_values(
    organization: Organization, user: User, values: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    """Return what a person's role is mapped by: values of the claim, and names of SCIM's groups.
    None where neither has a say."""
    known = scim_users(organization).filter(user=user).first()
    if known is None:
        return values
    return (*(values or ()), *(group.display_name for group in known.groups.all()))


def denials_are_many(organization: Organization, now: datetime) -> bool:
    """Tell whether enough was written down within the last minute."""
    minute = EventFilters(about="sso", start=now - timedelta(minutes=1))
    return len(events(organization.id, filters=minute, limit=REFUSALS_MAX)) == REFUSALS_MAX


def identity(organization: Organization, subject: str) -> SsoIdentity | None:
    """Return whom a subject of the organization's provider is."""
    rows = SsoIdentity.objects.select_related("user")
    return rows.filter(organization=organization, subject=subject).first()


def identity_of(organization: Organization, user: User) -> SsoIdentity | None:
    """Return who a person is to the organization's provider."""
    return SsoIdentity.objects.filter(organization=organization, user=user).first()


def scim_token(organization: Organization) -> ScimToken | None:
    """Return whether and how an organization's members are kept by SCIM."""
    return ScimToken.objects.select_related("heir__user").filter(organization=organization).first()


def scim_token_by_digest(digest: str) -> ScimToken | None:
    """Return whose token has a digest."""
    return ScimToken.objects.select_related("organization").filter(digest=digest).first()


def scim_users(organization: Organization) -> QuerySet[ScimUser]:
    """Return whom SCIM brought, the oldest first."""
    rows = ScimUser.objects.select_related("user").prefetch_related("groups")
    return rows.filter(organization=organization).order_by("created_at", "id")


def scim_user(organization: Organization, scim_user_id: str) -> ScimUser:
    """Return one of them. Raises ObjectNotFound."""
    found = scim_users(organization).filter(id=scim_user_id).first()
    if found is None:
        raise ObjectNotFound("There is no such user.")
    return found


def is_suspended(organization: Organization, user: User) -> bool:
    """Tell whether SCIM suspended a person."""
    return ScimUser.objects.filter(organization=organization, user=user, is_active=False).exists()


def scim_groups(organization: Organization) -> QuerySet[ScimGroup]:
    """Return the groups that SCIM brought, the oldest first."""
    rows = ScimGroup.objects.prefetch_related("members")
    return rows.filter(organization=organization).order_by("created_at", "id")


def scim_group(organization: Organization, group_id: str) -> ScimGroup:
    """Return one group. Raises ObjectNotFound."""
    found = scim_groups(organization).filter(id=group_id).first()
    if found is None:
        raise ObjectNotFound("There is no such group.")
    return found


def last_events(organization: Organization) -> list[AuditEvent]:
    """Return the latest sign-ins, refusals and changes by SSO and SCIM, the newest first."""
    found = [
        deed
        for noun in ("sso", "scim")
        for deed in events(organization.id, filters=EventFilters(about=noun), limit=LOG_MAX)
    ]
    return sorted(found, key=lambda deed: -deed.pk)[:LOG_MAX]
