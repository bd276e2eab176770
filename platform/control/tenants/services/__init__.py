"""What may be done to organizations, projects and members: verbs, one transaction each."""

from control.tenants.services.members import (
    accept_invitation,
    change_role,
    invite_member,
    remove_member,
    revoke_invitation,
)
from control.tenants.services.organizations import (
    create_organization,
    rename_organization,
    resume_organization,
    set_organization_limit,
    set_organization_terms,
    suspend_organization,
)
from control.tenants.services.projects import (
    archive_project,
    create_project,
    rename_project,
    set_project_limit,
    set_project_origins,
)

__all__ = [
    "accept_invitation",
    "archive_project",
    "change_role",
    "create_organization",
    "create_project",
    "invite_member",
    "remove_member",
    "rename_organization",
    "rename_project",
    "resume_organization",
    "revoke_invitation",
    "set_organization_limit",
    "set_organization_terms",
    "set_project_limit",
    "set_project_origins",
    "suspend_organization",
]
