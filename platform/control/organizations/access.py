"""Access of an API caller to an organization: which organization, and with which permissions."""

from dataclasses import dataclass

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from control.accounts.models import User
from control.errors import NotPermitted, ObjectNotFound
from control.organizations import selectors
from control.organizations.models import Organization
from control.permissions import Actor, Permission, Role, require
from control.request_context import bind_log_ids

OF_ORGANIZATION = OpenApiParameter(
    "organization_id", str, description="For people in several organizations; theirs by default."
)
"""The query parameter that `get_query_access` reads."""


@dataclass(frozen=True, slots=True)
class ApiKeyPrincipal:
    """`request.user` for an API key of the management API: authenticated, but not a person."""

    key_id: str
    name: str
    organization: Organization
    maker_id: str | None
    permissions: frozenset[Permission]
    is_authenticated: bool = True
    is_active: bool = True
    is_anonymous: bool = False
    is_staff: bool = False


@dataclass(frozen=True, slots=True)
class OrganizationAccess:
    """A caller in an organization they belong to."""

    organization: Organization
    actor: Actor

    def may(self, action: Permission) -> bool:
        """Return whether the caller's role, and their key's scopes, allow an action."""
        return self.actor.can(action)


def get_access(
    request: Request, organization_id: str, action: Permission = Permission.ORGANIZATION_READ
) -> OrganizationAccess:
    """Return the caller's access to an organization.

    Raises ObjectNotFound if the caller does not belong to it, NotPermitted if the role does not
    allow `action`.
    """
    access = _key_access(request.user, organization_id) or _person_access(request, organization_id)
    actor = access.actor
    bind_log_ids(
        organization_id=organization_id,
        user_id=actor.user_id,
        key_id=actor.id if actor.kind == "key" else None,
    )
    require(actor, access.organization.id, action)
    return access


def get_query_access(
    request: Request, action: Permission = Permission.ORGANIZATION_READ
) -> OrganizationAccess:
    """Return the caller's access to the organization of the query's `organization_id`. The default
    is the key's organization, or a person's first.

    Raises ObjectNotFound and NotPermitted as `get_access` does.
    """
    organization_id = request.query_params.get("organization_id")
    if not organization_id:
        organization = organization_of_key(request)
        organization_id = (
            organization.id if organization else _first_organization_id(get_user(request))
        )
    return get_access(request, organization_id, action)


def get_user(request: Request) -> User:
    """Return the user who calls. Raises NotPermitted for a key."""
    if not isinstance(request.user, User):
        raise NotPermitted("Only a person may do this, not an API key.")
    return request.user


def organization_of_key(request: Request) -> Organization | None:
    """Return the organization of the calling key, None for a person."""
    return request.user.organization if isinstance(request.user, ApiKeyPrincipal) else None


def _first_organization_id(user: User) -> str:
    membership = selectors.memberships(user).first()
    if membership is None:
        raise ObjectNotFound("There is no organization.")
    return membership.organization_id


def _key_access(principal: object, organization_id: str) -> OrganizationAccess | None:
    """Return a key's access: an admin's, limited to the key's scopes."""
    if not isinstance(principal, ApiKeyPrincipal):
        return None
    if principal.organization.id != organization_id:
        raise ObjectNotFound("There is no such organization.")
    actor = Actor(
        kind="key",
        id=principal.key_id,
        name=principal.name,
        organization_id=organization_id,
        role=Role.ADMIN,
        maker_id=principal.maker_id,
        granted=principal.permissions,
    )
    # Read again: the principal's row may be older than a lock that the view holds by now.
    return OrganizationAccess(selectors.organization(organization_id), actor)


def _person_access(request: Request, organization_id: str) -> OrganizationAccess:
    membership = selectors.membership(get_user(request), organization_id)
    return OrganizationAccess(membership.organization, Actor.for_member(membership))
