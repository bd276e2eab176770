"""The end of an organization: what it takes with it, said before and done at once. Rows stay, since
the books and the audit name them."""

from collections.abc import Iterable
from datetime import datetime
from typing import cast

from django.db import transaction
from django.dispatch import Signal
from django.utils import timezone

from control.audit import services as audit
from control.errors import Conflict, InvalidValue
from control.feed.services import FeedRef, publish
from control.organizations import selectors
from control.organizations.models import Organization, OrganizationStatus
from control.organizations.signals import (
    DeletionEffect,
    organization_deleted,
    organization_deletion_previewed,
)
from control.permissions import Actor, Permission, require


def preview_deletion(organization: Organization) -> list[DeletionEffect]:
    """Return what would end with an organization, and first what stands in the way of its end."""
    found = _of_people(organization)
    for _, told in _told(organization_deletion_previewed, organization, timezone.now()):
        found += cast("list[DeletionEffect]", told)
    return sorted(found, key=lambda each: not each.is_obstacle)


@transaction.atomic
def delete_organization(*, actor: Actor, organization: Organization, name: str) -> Organization:
    """End an organization for good: keys within a second, seats and invitations at once. `name`
    says that it is meant.

    Raises InvalidValue for another name, Conflict while something stands in the way, such as a
    debt.
    """
    require(actor, organization.id, Permission.ORGANIZATION_DELETE)
    organization = selectors.locked_organization(organization.id)
    if organization.status == OrganizationStatus.DELETED:
        raise Conflict("The organization is deleted.")
    if name.strip() != organization.name:
        raise InvalidValue(f"name must be the organization's, {organization.name}.", param="name")
    obstacles = [each.words for each in preview_deletion(organization) if each.is_obstacle]
    if obstacles:
        raise Conflict(" ".join(obstacles))
    now = timezone.now()
    members = selectors.members(organization).count()
    ended = _end(organization, now)
    audit.record(
        actor=actor,
        action="organization.delete",
        target_kind="organization",
        target_id=organization.id,
        organization_id=organization.id,
        details={"name": organization.name, "members": members, "ended": len(ended)},
    )
    publish([FeedRef("organization", organization.id), *ended])
    return organization


def _end(organization: Organization, now: datetime) -> list[FeedRef]:
    """End it and all that it has; return what of that is to be published, which must come last: a
    receiver takes row locks."""
    organization.status = OrganizationStatus.DELETED
    organization.save(update_fields=["status"])
    projects = list(selectors.locked_projects(organization).filter(archived_at__isnull=True))
    for project in projects:
        project.archived_at = now
        project.save(update_fields=["archived_at"])
    selectors.open_invitations(organization).update(revoked_at=now)
    answers = _told(organization_deleted, organization, now)
    selectors.members(organization).delete()
    rows = [row for _, told in answers for row in cast("list[FeedRef]", told)]
    return [*(FeedRef("project", project.id) for project in projects), *rows]


def _told(
    signal: Signal, organization: Organization, now: datetime
) -> Iterable[tuple[object, object]]:
    return signal.send(Organization, organization=organization, now=now)


def _of_people(organization: Organization) -> list[DeletionEffect]:
    members = selectors.members(organization).count()
    projects = selectors.projects(organization).count()
    invitations = selectors.open_invitations(organization).count()
    found = [
        DeletionEffect(
            f"{_counted(members, 'member loses', 'members lose')} the seat at once, you too."
            if members > 1
            else "You lose your seat at once; nobody else has one."
        ),
        DeletionEffect(f"{_counted(projects, 'project is', 'projects are')} archived."),
    ]
    if invitations:
        what = _counted(invitations, "open invitation is", "open invitations are")
        found.append(DeletionEffect(f"{what} withdrawn."))
    return found


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
