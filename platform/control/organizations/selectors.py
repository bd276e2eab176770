"""Questions about organizations and who is in them."""

from collections.abc import Iterable
from datetime import datetime

from allauth.account.models import EmailAddress
from django.db.models import Exists, OuterRef, QuerySet

from control.accounts.models import User
from control.audit.pseudonyms import NameDirectory
from control.errors import Conflict, ObjectNotFound
from control.organizations.models import Invitation, Membership, Organization, Project
from control.permissions import Role


def membership(user: User | str, organization_id: str) -> Membership:
    """Return a user's seat in an organization. Raises ObjectNotFound for a stranger."""
    seats = Membership.objects.select_related("organization", "user")
    found = seats.filter(user=user, organization_id=organization_id).first()
    if found is None:
        raise ObjectNotFound("There is no such organization.")
    return found


def memberships(user: User) -> QuerySet[Membership]:
    """Return all seats of a user, the oldest first."""
    seats = Membership.objects.select_related("organization", "user")
    return seats.filter(user=user).order_by("created_at", "id")


def organizations_of(user: User) -> list[Organization]:
    """Return the organizations that a user belongs to."""
    return [seat.organization for seat in memberships(user)]


def members(organization: Organization) -> QuerySet[Membership]:
    """Return the seats of an organization, the oldest first."""
    seats = Membership.objects.select_related("organization", "user")
    return seats.filter(organization=organization).order_by("created_at", "id")


def member(organization: Organization, membership_id: str) -> Membership:
    """Return one seat of an organization. Raises ObjectNotFound."""
    found = members(organization).filter(id=membership_id).first()
    if found is None:
        raise ObjectNotFound("There is no such member.")
    return found


def owner_count(organization: Organization) -> int:
    """Return how many owners an organization has."""
    return members(organization).filter(role=Role.OWNER).count()


def owner(organization: Organization) -> User | None:
    """Return the first owner of an organization."""
    seat = members(organization).filter(role=Role.OWNER).first()
    return seat.user if seat else None


def solely_owned_organizations(user: User) -> QuerySet[Organization]:
    """Return the organizations that have a user as their only owner."""
    owners = Membership.objects.filter(role=Role.OWNER)
    other = owners.filter(organization=OuterRef("pk")).exclude(user=user)
    theirs = owners.filter(organization=OuterRef("pk"), user=user)
    return Organization.objects.filter(Exists(theirs) & ~Exists(other)).order_by("name")


def first_owned_organization(user: User) -> Organization | None:
    """Return the oldest organization that a user owns."""
    seat = memberships(user).filter(role=Role.OWNER).first()
    return seat.organization if seat else None


def owned_count(user: User) -> int:
    """Return how many organizations a user owns."""
    return memberships(user).filter(role=Role.OWNER).count()


def notification_recipients(organization_id: str) -> list[str]:
    """Return the verified addresses of an organization's owners, admins and billing members."""
    roles = (Role.OWNER, Role.ADMIN, Role.BILLING)
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
    found = Organization.objects.select_for_update(no_key=True).filter(id=organization_id).first()
    if found is None:
        raise ObjectNotFound("There is no such organization.")
    return found


def organizations() -> QuerySet[Organization]:
    """Return all organizations, for operators."""
    return Organization.objects.order_by("-created_at")


def projects(organization: Organization, *, with_archived: bool = False) -> QuerySet[Project]:
    """Return the projects of an organization, the oldest first."""
    found = Project.objects.select_related("organization").filter(organization=organization)
    if not with_archived:
        found = found.filter(archived_at__isnull=True)
    return found.order_by("created_at", "id")


def project(organization: Organization, project_id: str) -> Project:
    """Return a project, archived or not. Raises ObjectNotFound."""
    found = projects(organization, with_archived=True).filter(id=project_id).first()
    if found is None:
        raise ObjectNotFound("There is no such project.")
    return found


def locked_project(organization: Organization, project_id: str) -> Project:
    """Return a project with its row locked until the transaction ends. Raises ObjectNotFound."""
    rows = Project.objects.select_for_update(of=("self",), no_key=True).select_related(
        "organization"
    )
    found = rows.filter(organization=organization, id=project_id).first()
    if found is None:
        raise ObjectNotFound("There is no such project.")
    return found


def locked_projects(organization: Organization) -> QuerySet[Project]:
    """Return all projects of an organization, locked in order until the transaction ends."""
    rows = Project.objects.select_for_update(of=("self",), no_key=True)
    return rows.filter(organization=organization).order_by("id")


def active_project(project: Project) -> Project:
    """Return a project that may have keys, it and its organization locked against ending.

    Raises Conflict when the organization is suspended or the project archived.
    """
    organization = locked_organization(project.organization_id)
    found = locked_project(organization, project.id)
    if not organization.is_active:
        raise Conflict(f"The organization is {organization.status}.")
    if found.is_archived:
        raise Conflict("The project is archived.")
    return found


def default_project(organization: Organization) -> Project:
    """Return the oldest project that is not archived. Raises ObjectNotFound when there is none."""
    found = projects(organization).first()
    if found is None:
        raise ObjectNotFound("There is no project.")
    return found


def has_project_named(organization: Organization, name: str) -> bool:
    """Tell whether a project that is not archived has the name."""
    return projects(organization).filter(name=name).exists()


def open_invitations(organization: Organization) -> QuerySet[Invitation]:
    """Return the invitations that are neither accepted nor revoked, the newest first."""
    rows = Invitation.objects.select_related("invited_by")
    found = rows.filter(
        organization=organization, accepted_at__isnull=True, revoked_at__isnull=True
    )
    return found.order_by("-created_at")


def expired_invitation(organization: Organization, email: str, now: datetime) -> Invitation | None:
    """Return the open invitation of an address whose time is over, its row locked."""
    rows = open_invitations(organization).select_for_update(of=("self",), no_key=True)
    return rows.filter(email=email, expires_at__lte=now).first()


def invitation(organization: Organization, invitation_id: str) -> Invitation:
    """Return an open invitation. Raises ObjectNotFound."""
    found = open_invitations(organization).filter(id=invitation_id).first()
    if found is None:
        raise ObjectNotFound("There is no such invitation.")
    return found


def invitation_by_digest(digest: str, now: datetime) -> Invitation:
    """Return the invitation that a secret opens at `now`, its row locked. Raises ObjectNotFound."""
    found = (
        Invitation.objects.select_for_update(of=("self",), no_key=True)
        .select_related("organization")
        .filter(digest=digest, accepted_at__isnull=True, revoked_at__isnull=True)
        .filter(expires_at__gt=now)
        .first()
    )
    if found is None:
        raise ObjectNotFound("The invitation is unknown, used or expired.")
    return found


def is_member(organization: Organization, email: str) -> bool:
    """Tell whether a person already has a seat."""
    return members(organization).filter(user__email=email.lower()).exists()


class InvitationDirectory(NameDirectory):
    """People who were invited to an organization."""

    def names(self, references: Iterable[str]) -> dict[str, str]:
        """Return the invited addresses by the invitations' ids."""
        asked = [each for each in references if each.startswith("inv_")]
        rows = Invitation.objects.filter(id__in=asked) if asked else Invitation.objects.none()
        return dict(rows.values_list("id", "email"))
