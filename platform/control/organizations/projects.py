"""Create, change, archive and restore projects."""

from collections.abc import Iterable
from typing import cast

from django.db import transaction
from django.utils import timezone

from control.audit import services as audit
from control.db.row_changes import differences, snapshot
from control.errors import Conflict
from control.feed.services import FeedRef, publish
from control.organizations import selectors, validators
from control.organizations.models import Organization, Project
from control.organizations.signals import limits_changed, project_archived
from control.permissions import Actor, Permission, require
from serving.contract.budget import limit_budget_id

CREATED_FIELDS = ("name", "spend_limit_nanos", "allowed_origins")


@transaction.atomic
def create_project(
    *,
    actor: Actor,
    organization: Organization,
    name: str,
    spend_limit_nanos: int | None = None,
    allowed_origins: Iterable[str] = (),
) -> Project:
    """Create a project. `spend_limit_nanos` is a monthly limit in nano-dollars; pages of
    `allowed_origins` may call with the project's keys.

    Raises Conflict if another project has the name, InvalidValue for an invalid origin.
    """
    require(actor, organization.id, Permission.PROJECTS_WRITE)
    organization = selectors.locked_organization(organization.id)
    project = Project.objects.create(
        organization=organization,
        name=_free_name(organization, name),
        spend_limit_nanos=validators.spend_limit_nanos(spend_limit_nanos),
        allowed_origins=validators.origins(allowed_origins),
    )
    audit.record_about(actor, "project.created", project, **snapshot(project, CREATED_FIELDS))
    publish([FeedRef("project", project.id)])
    return project


@transaction.atomic
def rename_project(*, actor: Actor, project: Project, name: str) -> Project:
    """Rename a project. Raises Conflict if another project has the name."""
    require(actor, project.organization_id, Permission.PROJECTS_WRITE)
    organization = selectors.locked_organization(project.organization_id)
    project = _active(organization, project)
    before, project.name = project.name, _free_name(organization, name, project.name)
    project.save(update_fields=["name"])
    audit.record_about(
        actor, "project.renamed", project, **differences({"name": before}, {"name": project.name})
    )
    return project


@transaction.atomic
def set_project_limit(*, actor: Actor, project: Project, spend_limit_nanos: int | None) -> Project:
    """Limit what a project spends in a UTC month, in nano-dollars; None lifts the limit."""
    require(actor, project.organization_id, Permission.LIMITS_WRITE)
    project = _active(project.organization, project)
    before = project.spend_limit_nanos
    project.spend_limit_nanos = validators.spend_limit_nanos(spend_limit_nanos)
    project.save(update_fields=["spend_limit_nanos"])
    limit = differences({"spend_limit_nanos": before}, {"spend_limit_nanos": spend_limit_nanos})
    audit.record_about(actor, "project.limit_set", project, **limit)
    limits = {limit_budget_id(project.id): project.spend_limit_nanos}
    limits_changed.send(Project, limits=limits, now=timezone.now())
    publish([FeedRef("project", project.id)])
    return project


@transaction.atomic
def set_project_origins(
    *, actor: Actor, project: Project, allowed_origins: Iterable[str]
) -> Project:
    """Set the origins whose pages may call with a project's keys; an empty list allows none.

    Raises InvalidValue for an invalid origin.
    """
    require(actor, project.organization_id, Permission.PROJECTS_WRITE)
    project = _active(project.organization, project)
    before, project.allowed_origins = project.allowed_origins, validators.origins(allowed_origins)
    project.save(update_fields=["allowed_origins"])
    origins = differences({"allowed_origins": before}, {"allowed_origins": project.allowed_origins})
    audit.record_about(actor, "project.allowed_origins_set", project, **origins)
    publish([FeedRef("project", project.id)])
    return project


@transaction.atomic
def archive_project(*, actor: Actor, project: Project) -> Project:
    """Archive a project and revoke its keys for good. Its usage stays readable."""
    require(actor, project.organization_id, Permission.PROJECTS_WRITE)
    project = _active(project.organization, project)
    now = timezone.now()
    project.archived_at = now
    project.save(update_fields=["archived_at"])
    # Before publishing: receivers take row locks, and the feed's lock must come last.
    responses = project_archived.send(Project, project=project, now=now)
    ended: list[FeedRef] = [row for _, rows in responses for row in cast(list[FeedRef], rows)]
    audit.record_about(actor, "project.archived", project, keys=[row.id for row in ended])
    publish([FeedRef("project", project.id), *ended])
    return project


@transaction.atomic
def restore_project(*, actor: Actor, project: Project) -> Project:
    """Restore an archived project. Its keys stay revoked.

    Raises Conflict if it is not archived, or if another project has its name now.
    """
    require(actor, project.organization_id, Permission.PROJECTS_WRITE)
    organization = selectors.locked_organization(project.organization_id)
    project = selectors.locked_project(organization, project.id)
    if not project.is_archived:
        raise Conflict("The project is not archived.")
    _free_name(organization, project.name)
    project.archived_at = None
    project.save(update_fields=["archived_at"])
    audit.record_about(actor, "project.restored", project, name=project.name)
    publish([FeedRef("project", project.id)])
    return project


def _active(organization: Organization, project: Project) -> Project:
    project = selectors.locked_project(organization, project.id)
    if project.is_archived:
        raise Conflict("The project is archived.")
    return project


def _free_name(organization: Organization, wanted: str, current: str = "") -> str:
    name = validators.name(wanted)
    if name != current and selectors.has_project_named(organization, name):
        raise Conflict(f"A project named {name} already exists.", param="name")
    return name
