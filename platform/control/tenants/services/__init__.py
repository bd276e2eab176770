"""What may be done to organizations, projects and members: verbs, one transaction each."""

from control.tenants.services.deletion import consequences, delete_organization
from control.tenants.services.members import (
    accept_invitation,
    change_role,
    invite_member,
    remove_member,
    renew_invitation,
    revoke_invitation,
)
from control.tenants.services.operators import (
    accept_operator_invitation,
    change_operator_role,
    dismiss_operator,
    invite_operator,
    revoke_operator_invitation,
)
from control.tenants.services.organizations import (
    create_organization,
    rename_organization,
    resume_organization,
    set_organization_limit,
    set_organization_terms,
    set_taking_idempotency_keys,
    suspend_organization,
)
from control.tenants.services.projects import (
    archive_project,
    create_project,
    rename_project,
    restore_project,
    set_project_limit,
    set_project_origins,
)

__all__ = [
    "accept_invitation",
    "accept_operator_invitation",
    "archive_project",
    "change_operator_role",
    "change_role",
    "consequences",
    "create_organization",
    "create_project",
    "delete_organization",
    "dismiss_operator",
    "invite_member",
    "invite_operator",
    "remove_member",
    "rename_organization",
    "rename_project",
    "renew_invitation",
    "restore_project",
    "resume_organization",
    "revoke_invitation",
    "revoke_operator_invitation",
    "set_organization_limit",
    "set_organization_terms",
    "set_project_limit",
    "set_project_origins",
    "set_taking_idempotency_keys",
    "suspend_organization",
]
