"""Queries about organizations, projects, members and invitations."""

from collections.abc import Iterable
from datetime import datetime

from allauth.account.models import EmailAddress
from django.db.models import Exists, OuterRef, Q, QuerySet

from control.accounts.models import User
from control.audit.pseudonyms import NameDirectory
from control.db.models import get_or_not_found
from control.errors import Conflict, ObjectNotFound
from control.organizations.models import Invitation, Membership, Organization, Project
from control.permissions import Role


def membership(user: User | str, organization_id: str) -> Membership:
    """Return a user's membership of an organization. Raises ObjectNotFound if there is none."""
    rows = Membership.objects.select_related("organization", "user")
    return get_or_not_found(rows, "organization", user=user, organization_id=organization_id)


def memberships(user: User) -> QuerySet[Membership]:
    """Return all memberships of a user, oldest first."""
    rows = Membership.objects.select_related("organization", "user")
    return rows.filter(user=user).order_by("created_at", "id")


def organizations_of(user: User) -> list[Organization]:
    return [row.organization for row in memberships(user)]


def members(organization: Organization) -> QuerySet[Membership]:
    """Return the memberships of an organization, oldest first."""
    rows = Membership.objects.select_related("organization", "user")
    return rows.filter(organization=organization).order_by("created_at", "id")


def member(organization: Organization, membership_id: str) -> Membership:
    """Return one membership of an organization. Raises ObjectNotFound."""
    return get_or_not_found(members(organization), "member", id=membership_id)


def owner_count(organization: Organization) -> int:
    return members(organization).filter(role=Role.OWNER).count()


def owner(organization: Organization) -> User | None:
    """Return the first owner of an organization."""
    row = members(organization).filter(role=Role.OWNER).first()
    return row.user if row else None


def solely_owned_organizations(user: User) -> QuerySet[Organization]:
    """Return the organizations whose only owner is the user, by name."""
    owners = Membership.objects.filter(role=Role.OWNER, organization=OuterRef("pk"))
    is_owner = Exists(owners.filter(user=user))
    has_other_owner = Exists(owners.exclude(user=user))
    return Organization.objects.filter(is_owner & ~has_other_owner).order_by("name")


def first_owned_organization(user: User) -> Organization | None:
    """Return the oldest organization that a user owns."""
    row = memberships(user).filter(role=Role.OWNER).first()
    return row.organization if row else None


def owned_count(user: User) -> int:
    return memberships(user).filter(role=Role.OWNER).count()


def owner_addresses(organization_id: str) -> list[str]:
    """Return the verified addresses of an organization's owners."""
    return _addresses(organization_id, [Role.OWNER])


def notification_recipients(organization_id: str) -> list[str]:
    """Return the verified addresses of an organization's owners, admins and billing members."""
    return _addresses(organization_id, [Role.OWNER, Role.ADMIN, Role.BILLING])


def _addresses(organization_id: str, roles: Iterable[Role]) -> list[str]:
    found = EmailAddress.objects.filter(
        verified=True,
        primary=True,
        user__memberships__organization_id=organization_id,
        user__memberships__role__in=roles,
    )
    return sorted(set(found.values_list("email", flat=True)))


def locked_organization(organization_id: str) -> Organization:
    """Return an organization with its row locked until the transaction ends. Raises
    ObjectNotFound."""
    rows = Organization.objects.select_for_update(no_key=True)
    return get_or_not_found(rows, "organization", id=organization_id)


def organizations() -> QuerySet[Organization]:
    """Return all organizations, for operators."""
    return Organization.objects.order_by("-created_at")


def organization(organization_id: str) -> Organization:
    """Return any organization, for operators. Raises ObjectNotFound."""
    return get_or_not_found(organizations(), "organization", id=organization_id)


def organization_name(organization_id: str) -> str:
    """Return the name of any organization; the id of one that does not exist."""
    names = Organization.objects.filter(id=organization_id).values_list("name", flat=True)
    return names.first() or organization_id


def search_organizations(*, search: str = "", status: str = "") -> QuerySet[Organization]:
    """Return the organizations, for operators, whose name, id or a member's email address contains
    a text, and that have a status; an empty text filters nothing."""
    found = organizations().filter(status=status) if status else organizations()
    if not search:
        return found
    members = Membership.objects.filter(organization=OuterRef("pk"), user__email__icontains=search)
    return found.filter(Q(name__icontains=search) | Q(id__icontains=search) | Exists(members))


def projects(organization: Organization, *, with_archived: bool = False) -> QuerySet[Project]:
    """Return the projects of an organization, oldest first."""
    found = Project.objects.select_related("organization").filter(organization=organization)
    if not with_archived:
        found = found.filter(archived_at__isnull=True)
    return found.order_by("created_at", "id")


def project(organization: Organization, project_id: str) -> Project:
    """Return a project, archived or not. Raises ObjectNotFound."""
    return get_or_not_found(projects(organization, with_archived=True), "project", id=project_id)


def locked_project(organization: Organization, project_id: str) -> Project:
    """Return a project with its row locked until the transaction ends. Raises ObjectNotFound."""
    rows = Project.objects.select_for_update(of=("self",), no_key=True).select_related(
        "organization"
    )
    return get_or_not_found(rows, "project", organization=organization, id=project_id)


def locked_projects(organization: Organization) -> QuerySet[Project]:
    """Return all projects of an organization, locked in order until the transaction ends."""
    rows = Project.objects.select_for_update(of=("self",), no_key=True)
    return rows.filter(organization=organization).order_by("id")


def active_project(project: Project) -> Project:
    """Return a project that may have keys, with its row and its organization's row locked.

    Raises Conflict if the organization is not active or the project is archived.
    """
    organization = locked_organization(project.organization_id)
    locked = locked_project(organization, project.id)
    if not organization.is_active:
        raise Conflict(f"The organization is {organization.status}.")
    if locked.is_archived:
        raise Conflict("The project is archived.")
    return locked


def default_project(organization: Organization) -> Project:
    """Return the oldest project that is not archived. Raises ObjectNotFound if there is none."""
    found = projects(organization).first()
    if found is None:
        raise ObjectNotFound("There is no project.")
    return found


def has_project_named(organization: Organization, name: str) -> bool:
    """Return whether a project that is not archived has the name."""
    return projects(organization).filter(name=name).exists()


def open_invitations(organization: Organization) -> QuerySet[Invitation]:
    """Return the invitations that are neither used nor withdrawn, expired ones too, newest
    first."""
    rows = Invitation.objects.select_related("invited_by").filter(
        organization=organization, accepted_at__isnull=True, revoked_at__isnull=True
    )
    return rows.order_by("-created_at")


def expired_invitation(organization: Organization, email: str, now: datetime) -> Invitation | None:
    """Return the open but expired invitation of an address, with its row locked."""
    rows = open_invitations(organization).select_for_update(of=("self",), no_key=True)
    return rows.filter(email=email, expires_at__lte=now).first()


def invitation(organization: Organization, invitation_id: str) -> Invitation:
    """Return an open invitation. Raises ObjectNotFound."""
    return get_or_not_found(open_invitations(organization), "invitation", id=invitation_id)


def locked_invitation(invitation_id: str) -> Invitation:
    """Return any invitation with its row locked until the transaction ends."""
    return Invitation.objects.select_for_update(no_key=True).get(id=invitation_id)


def invitation_by_digest(digest: str) -> Invitation | None:
    """Return the invitation, in any state, that a secret with this digest belongs to."""
    rows = Invitation.objects.select_related("organization", "invited_by")
    return rows.filter(digest=digest).first()


def is_member(organization: Organization, email: str) -> bool:
    """Return whether a person is already a member."""
    return members(organization).filter(user__email=email.lower()).exists()


class InvitationDirectory(NameDirectory):
    """Email addresses of people who were invited to an organization."""

    def names(self, references: Iterable[str]) -> dict[str, str]:
        """Return the invited addresses by the invitations' ids."""
        ids = [reference for reference in references if reference.startswith("inv_")]
        rows = Invitation.objects.filter(id__in=ids) if ids else Invitation.objects.none()
        return dict(rows.values_list("id", "email"))
