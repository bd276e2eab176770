"""Access control: actors, roles, permissions, and the tables that relate them.

Every service first calls `require` (in a customer's organization) or `require_operator` (in the
platform); the admin checks permissions by app (`accounts.models.User.has_perm`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, Protocol

from django.db import models
from django.utils.translation import gettext_lazy as _

from control.errors import NotPermitted, ObjectNotFound


class Permission(StrEnum):
    """A permission, `resource:verb`: in an organization or, from `platform:read` on, in the
    platform."""

    ORGANIZATION_READ = "organization:read"
    ORGANIZATION_UPDATE = "organization:update"
    ORGANIZATION_DELETE = "organization:delete"
    OWNERS_WRITE = "owners:write"
    SSO_WRITE = "sso:write"
    PROJECTS_WRITE = "projects:write"
    MEMBERS_WRITE = "members:write"
    WEBHOOKS_WRITE = "webhooks:write"
    DATA_RETENTION_WRITE = "data_retention:write"
    AUDIT_READ = "audit:read"
    API_KEYS_WRITE = "api_keys:write"
    API_KEYS_GRANT = "api_keys:grant"
    """Write access to keys with the scope `manage`, and to keys of other members."""
    BILLING_READ = "billing:read"
    BILLING_WRITE = "billing:write"
    LIMITS_WRITE = "limits:write"

    PLATFORM_READ = "platform:read"
    CUSTOMERS_WRITE = "customers:write"
    CATALOG_WRITE = "catalog:write"
    FINANCE_WRITE = "finance:write"
    OPERATORS_WRITE = "operators:write"


class Role(models.TextChoices):
    """A member's role in an organization."""

    OWNER = "owner", _("Owner")
    ADMIN = "admin", _("Admin")
    BILLING = "billing", _("Billing")
    DEVELOPER = "developer", _("Developer")
    VIEWER = "viewer", _("Viewer")


class OperatorRole(StrEnum):
    """An operator's role in the platform."""

    VIEWER = "viewer"
    SUPPORT = "support"
    CATALOG = "catalog"
    FINANCE = "finance"
    OWNER = "owner"


OPERATOR_PERMISSIONS: dict[str, frozenset[Permission]] = {
    OperatorRole.VIEWER: frozenset({Permission.PLATFORM_READ}),
    OperatorRole.SUPPORT: frozenset({Permission.PLATFORM_READ, Permission.CUSTOMERS_WRITE}),
    OperatorRole.CATALOG: frozenset({Permission.PLATFORM_READ, Permission.CATALOG_WRITE}),
    OperatorRole.FINANCE: frozenset({Permission.PLATFORM_READ, Permission.FINANCE_WRITE}),
    OperatorRole.OWNER: frozenset(
        {
            Permission.PLATFORM_READ, Permission.CUSTOMERS_WRITE, Permission.CATALOG_WRITE,
            Permission.FINANCE_WRITE, Permission.OPERATORS_WRITE,
        }
    ),
}  # fmt: skip
_MEMBER_PERMISSIONS = frozenset(Permission) - OPERATOR_PERMISSIONS[OperatorRole.OWNER]
_OWNERS_ONLY = {
    Permission.OWNERS_WRITE, Permission.SSO_WRITE,
    Permission.ORGANIZATION_UPDATE, Permission.ORGANIZATION_DELETE,
}  # fmt: skip
ROLE_PERMISSIONS: dict[str, frozenset[Permission]] = {
    Role.OWNER: _MEMBER_PERMISSIONS,
    Role.ADMIN: _MEMBER_PERMISSIONS - _OWNERS_ONLY,
    Role.BILLING: frozenset(
        {
            Permission.ORGANIZATION_READ, Permission.BILLING_READ, Permission.BILLING_WRITE,
            Permission.LIMITS_WRITE,
        }
    ),
    Role.DEVELOPER: frozenset({Permission.ORGANIZATION_READ, Permission.API_KEYS_WRITE}),
    Role.VIEWER: frozenset({Permission.ORGANIZATION_READ}),
}  # fmt: skip
KEY_PERMISSIONS = ROLE_PERMISSIONS[Role.ADMIN]
"""The permissions that API keys can be given. A key acts with an admin's role, limited to its
scopes."""
_OPERATOR_EQUIVALENTS = {
    Permission.ORGANIZATION_READ: Permission.PLATFORM_READ,
    Permission.BILLING_READ: Permission.PLATFORM_READ,
    Permission.BILLING_WRITE: Permission.FINANCE_WRITE,
    Permission.LIMITS_WRITE: Permission.FINANCE_WRITE,
    Permission.ORGANIZATION_DELETE: Permission.OPERATORS_WRITE,
}
"""The permission that an operator needs instead of a member's; CUSTOMERS_WRITE for all others."""

ActorKind = Literal["user", "key", "system"]


class UserLike(Protocol):
    """The fields of a user that this module reads, since it may not import the model."""

    id: str
    email: str
    operator_role: str


class MembershipLike(Protocol):
    """The fields of a membership that this module reads."""

    user_id: str
    organization_id: str
    role: str

    @property
    def user(self) -> UserLike: ...


@dataclass(frozen=True, slots=True)
class Actor:
    """The author of an action, as the audit log names it. `role` applies in `organization_id`
    only, `operator_role` in the whole platform."""

    kind: ActorKind
    id: str
    name: str
    user_id: str | None = None
    organization_id: str | None = None
    role: str | None = None
    operator_role: str | None = None
    maker_id: str | None = None
    """The user who is responsible for an API key."""
    token_id: str | None = None
    """The operator token that a user acts with; None in the admin."""
    granted: frozenset[Permission] | None = None
    """The permissions that an API key's scopes or an operator token grant; None, for a person,
    means all that their role has."""

    @classmethod
    def for_user(cls, user: UserLike) -> "Actor":
        """Return a user as an actor, with their operator role if they have one."""
        role = user.operator_role or None
        return cls("user", user.id, user.email, user_id=user.id, operator_role=role)

    @classmethod
    def for_member(cls, membership: MembershipLike) -> "Actor":
        """Return a member as an actor in their organization."""
        return cls(
            kind="user",
            id=membership.user_id,
            name=membership.user.email,
            user_id=membership.user_id,
            organization_id=membership.organization_id,
            role=membership.role,
        )

    @classmethod
    def for_operator_token(
        cls, user: UserLike, token_id: str, permissions: Iterable[str]
    ) -> "Actor":
        """Return an operator as an actor who may do what both the token and their role allow."""
        allowed = frozenset(map(Permission, permissions))
        return replace(cls.for_user(user), token_id=token_id, granted=allowed)

    @classmethod
    def for_system(cls, name: str) -> "Actor":
        """Return the platform itself as an actor, such as a seed or a schedule."""
        return cls("system", "", name, operator_role=OperatorRole.OWNER)

    def in_log_of(self, organization_id: str) -> "Actor":
        """Return the actor as an organization's audit log may name it: another organization's
        identity provider without the id, which is that organization's."""
        is_elsewhere = self.organization_id not in (None, organization_id)
        return replace(self, id="") if self.kind == "system" and is_elsewhere else self

    @property
    def person_id(self) -> str | None:
        """The id of the user who acts, directly or with an API key."""
        return self.user_id or self.maker_id

    @property
    def is_operator(self) -> bool:
        """Whether the actor is an operator of the platform."""
        return self.operator_role is not None

    def can_operate(self, permission: Permission) -> bool:
        """Return whether an operator's role has a permission, and their token, if they use one."""
        return self.is_granted(permission) and operator_can(self.operator_role, permission)

    def can(self, permission: Permission) -> bool:
        """Return whether a member's role has a permission, and so have the scopes of their key."""
        return self.role is not None and self.is_granted(permission) and can(self.role, permission)

    def is_granted(self, permission: Permission) -> bool:
        """Return whether the key or token that the actor uses, if any, grants a permission."""
        return self.granted is None or permission in self.granted


def can(role: str, permission: Permission) -> bool:
    """Return whether a member's role has a permission."""
    return permission in ROLE_PERMISSIONS[role]


def operator_can(role: str | None, permission: Permission) -> bool:
    """Return whether an operator's role has a permission; None or "" means no operator."""
    return permission in OPERATOR_PERMISSIONS.get(role or "", frozenset())


def require(actor: Actor, organization_id: str, permission: Permission) -> None:
    """Check that an actor has a permission in an organization.

    Raises ObjectNotFound if the actor is not a member, NotPermitted if the role or the API key
    lacks it.
    """
    if actor.is_operator:
        require_operator(actor, _OPERATOR_EQUIVALENTS.get(permission, Permission.CUSTOMERS_WRITE))
        return
    if actor.organization_id != organization_id or actor.role is None:
        raise ObjectNotFound("There is no such organization.")
    if not can(actor.role, permission):
        raise NotPermitted(f"The role {actor.role} lacks the permission {permission}.")
    if not actor.is_granted(permission):
        raise NotPermitted(f"The API key lacks the scope {permission}.")


def require_operator(actor: Actor, permission: Permission) -> None:
    """Check that an actor is an operator with a permission. Raises NotPermitted."""
    if not actor.is_operator:
        raise NotPermitted("Only operators of the platform may do this.")
    if not operator_can(actor.operator_role, permission):
        role = f"operator's role {actor.operator_role}"
        raise NotPermitted(f"The {role} lacks the permission {permission}.")
    if not actor.can_operate(permission):
        raise NotPermitted(f"The operator token lacks the permission {permission}.")
