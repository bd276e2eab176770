"""Deletion of an organization: a preview of its effects, and the deletion itself. Rows remain,
since billing and the audit log refer to them."""

from collections.abc import Iterable
from datetime import datetime
from typing import cast

from django.db import transaction
from django.dispatch import Signal
from django.utils import timezone
from django.utils.translation import gettext, ngettext

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
    """Return the effects of deleting an organization, obstacles first."""
    effects = _own_effects(organization)
    for _, reported in _send(organization_deletion_previewed, organization, timezone.now()):
        effects += cast("list[DeletionEffect]", reported)
    return sorted(effects, key=lambda effect: not effect.is_obstacle)


@transaction.atomic
def delete_organization(*, actor: Actor, organization: Organization, name: str) -> Organization:
    """Delete an organization for good: keys end within a second, memberships and invitations at
    once. `name` confirms the deletion.

    Raises InvalidValue if the name differs, Conflict while there is an obstacle, such as a debt.
    """
    require(actor, organization.id, Permission.ORGANIZATION_DELETE)
    organization = selectors.locked_organization(organization.id)
    if organization.status == OrganizationStatus.DELETED:
        raise Conflict("The organization is deleted.")
    if name.strip() != organization.name:
        raise InvalidValue(f"name must be the organization's, {organization.name}.", param="name")
    effects = preview_deletion(organization)
    obstacles = [effect.words for effect in effects if effect.is_obstacle]
    if obstacles:
        raise Conflict(" ".join(obstacles))
    now = timezone.now()
    members = selectors.members(organization).count()
    ended = _end(organization, now)
    audit.record_about(
        actor, "organization.deleted", organization,
        name=organization.name, members=members, ended_count=len(ended),
    )  # fmt: skip
    publish([FeedRef("organization", organization.id), *ended])
    return organization


def _end(organization: Organization, now: datetime) -> list[FeedRef]:
    """End an organization and everything in it. Return the ended rows, which the caller publishes
    last, since receivers take row locks."""
    organization.status = OrganizationStatus.DELETED
    organization.save(update_fields=["status"])
    projects = list(selectors.locked_projects(organization).filter(archived_at__isnull=True))
    for project in projects:
        project.archived_at = now
        project.save(update_fields=["archived_at"])
    selectors.open_invitations(organization).update(revoked_at=now)
    responses = _send(organization_deleted, organization, now)
    selectors.members(organization).delete()
    ended = [row for _, rows in responses for row in cast("list[FeedRef]", rows)]
    return [*(FeedRef("project", project.id) for project in projects), *ended]


def _send(
    signal: Signal, organization: Organization, now: datetime
) -> Iterable[tuple[object, object]]:
    return signal.send(Organization, organization=organization, now=now)


def _own_effects(organization: Organization) -> list[DeletionEffect]:
    members = selectors.members(organization).count()
    projects = selectors.projects(organization).count()
    invitations = selectors.open_invitations(organization).count()
    access = gettext("You lose access at once. There are no other members.")
    if members > 1:
        access = gettext("All %(count)d members lose access at once, including you.") % {
            "count": members
        }
    archived = ngettext(
        "%(count)d project is archived.", "%(count)d projects are archived.", projects
    )
    effects = [DeletionEffect(access), DeletionEffect(archived % {"count": projects})]
    if invitations:
        revoked = ngettext(
            "%(count)d open invitation is withdrawn.",
            "%(count)d open invitations are withdrawn.",
            invitations,
        )
        effects.append(DeletionEffect(revoked % {"count": invitations}))
    return effects
