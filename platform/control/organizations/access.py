"""Which organization a request concerns, and what its caller may do there."""

from dataclasses import dataclass

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from control.accounts.models import User
from control.errors import NotPermitted, ObjectNotFound
from control.organizations import selectors
from control.organizations.models import Membership, Organization
from control.permissions import Actor, Permission, Role, can, require
from control.request_context import bind_log_ids

OF_ORGANIZATION = OpenApiParameter(
    "organization_id", str, description="For people in several organizations; theirs by default."
)
"""What `access_asked` reads."""


@dataclass(frozen=True, slots=True)
class ApiKeyPrincipal:
    """What `request.user` is for an API key with the scope `manage`: somebody, but no person."""

    key_id: str
    name: str
    organization: Organization
    maker_id: str | None
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
        """Tell whether the caller's role allows an action."""
        return self.actor.role is not None and can(self.actor.role, action)


def get_access(
    request: Request, organization_id: str, action: Permission = Permission.ORGANIZATION_READ
) -> OrganizationAccess:
    """Return the caller's access to an organization.

    Raises ObjectNotFound where the caller has no part, NotPermitted where the role does not allow
    `action`.
    """
    found = _of_key(request.user, organization_id) or _of_person(request, organization_id)
    actor = found.actor
    bind_log_ids(
        organization_id=organization_id,
        user_id=actor.user_id,
        key_id=actor.id if actor.kind == "key" else None,
    )
    require(found.actor, found.organization.id, action)
    return found


def get_query_access(
    request: Request, action: Permission = Permission.ORGANIZATION_READ
) -> OrganizationAccess:
    """Return the caller's access to the organization of the query's `organization_id`; without it
    to the key's, or a person's first.

    Raises ObjectNotFound and NotPermitted as `access` does.
    """
    asked = request.query_params.get("organization_id")
    if not asked:
        of_key = organization_of_key(request)
        asked = of_key.id if of_key else _first_organization(get_user(request))
    return get_access(request, asked, action)


def get_user(request: Request) -> User:
    """Return the person who calls. Raises NotPermitted for a key."""
    if not isinstance(request.user, User):
        raise NotPermitted("Only a person may do this, not an API key.")
    return request.user


def organization_of_key(request: Request) -> Organization | None:
    """Return the organization whose key calls, None for a person."""
    return request.user.organization if isinstance(request.user, ApiKeyPrincipal) else None


def _first_organization(user: User) -> str:
    seat = selectors.memberships(user).first()
    if seat is None:
        raise ObjectNotFound("There is no organization.")
    return seat.organization_id


def _of_key(holder: object, organization_id: str) -> OrganizationAccess | None:
    """A key with the scope `manage`, which only admins make, acts as an admin."""
    if not isinstance(holder, ApiKeyPrincipal):
        return None
    if holder.organization.id != organization_id:
        raise ObjectNotFound("There is no such organization.")
    actor = Actor(
        kind="key",
        id=holder.key_id,
        name=holder.name,
        organization_id=organization_id,
        role=Role.ADMIN,
        maker_id=holder.maker_id,
    )
    return OrganizationAccess(holder.organization, actor)


def _of_person(request: Request, organization_id: str) -> OrganizationAccess:
    membership = selectors.membership(get_user(request), organization_id)
    return OrganizationAccess(membership.organization, actor_for_member(membership))


def actor_for_member(membership: Membership) -> Actor:
    """Return a member as an actor in their organization."""
    return Actor(
        kind="user",
        id=membership.user_id,
        name=membership.user.email,
        user_id=membership.user_id,
        organization_id=membership.organization_id,
        role=membership.role,
    )
