"""SCIM users and groups: the attributes of the schemas that we store, and conversions of rows."""

from datetime import datetime
from typing import Annotated, Any

from scim2_models import (
    ComplexAttribute,
    Group,
    GroupMember,
    Meta,
    Mutability,
    Required,
    Resource,
    Uniqueness,
)
from scim2_models.path import URN

from control.mail.services import absolute
from control.sso.models import ScimGroup, ScimUser
from control.sso.scim_members import ScimGroupProfile, ScimProfile

BASE = "/scim/v2"


class ScimName(ComplexAttribute):
    """The parts of a person's name."""

    given_name: str | None = None
    """The given name."""

    family_name: str | None = None
    """The family name."""


class ScimEmail(ComplexAttribute):
    """An address of a person."""

    value: Annotated[str | None, Mutability.read_only] = None
    """The address."""

    primary: Annotated[bool | None, Mutability.read_only] = None
    """Whether it is the one that the account is known by."""


class ScimMembership(ComplexAttribute):
    """A group that a person is in."""

    value: Annotated[str | None, Mutability.read_only] = None
    """The group's id."""

    display: Annotated[str | None, Mutability.read_only] = None
    """The group's name."""


class User(Resource[Any]):
    """A person: the attributes of RFC 7643's User that we keep."""

    __schema__ = URN("urn:ietf:params:scim:schemas:core:2.0:User")

    user_name: Annotated[str | None, Required.true, Uniqueness.server] = None
    """The e-mail address, of a verified domain."""

    name: ScimName | None = None
    """The person's name."""

    active: bool | None = None
    """Whether the person is a member; false suspends them at once."""

    emails: Annotated[list[ScimEmail] | None, Mutability.read_only] = None
    """The address that the account is known by."""

    groups: Annotated[list[ScimMembership] | None, Mutability.read_only] = None
    """The groups that the person is in."""


WRITABLE: dict[type[Resource[Any]], frozenset[str]] = {
    User: frozenset({"username", "name", "active", "externalid"}),
    Group: frozenset({"displayname", "members", "externalid"}),
}
"""The attributes read from requests, in lower case; all others are ignored."""
MODELS: dict[str, type[Resource[Any]]] = {"User": User, "Group": Group}


def user_resource(row: ScimUser) -> User:
    """Return a user as a SCIM resource."""
    has_name = row.given_name or row.family_name
    return User(
        id=row.id,
        external_id=row.external_id or None,
        user_name=row.user_name,
        name=ScimName(given_name=row.given_name or None, family_name=row.family_name or None)
        if has_name
        else None,
        active=row.is_active,
        emails=[ScimEmail(value=row.user.email, primary=True)],
        groups=[
            ScimMembership(value=each.id, display=each.display_name) for each in row.groups.all()
        ]
        or None,
        meta=_meta("User", row.id, row.created_at, row.updated_at),
    )


def group_resource(row: ScimGroup) -> Group:
    """Return a group as a SCIM resource."""
    members = [
        GroupMember(value=each.id, ref=absolute(f"{BASE}/Users/{each.id}"), type="User")
        for each in row.members.all()
    ]
    return Group(
        id=row.id,
        external_id=row.external_id or None,
        display_name=row.display_name,
        members=members or None,
        meta=_meta("Group", row.id, row.created_at, row.updated_at),
    )


def bare(row: ScimGroup) -> Group:
    """Return a group in the form of requests: members have ids only."""
    members = [GroupMember(value=each.id) for each in row.members.all()]
    return Group(
        id=row.id,
        external_id=row.external_id or None,
        display_name=row.display_name,
        members=members or None,
    )


def profile_of(resource: User, *, is_active: bool = True) -> ScimProfile:
    """Return the user profile in a request; `is_active` is the default of `active`."""
    name = resource.name or ScimName()
    return ScimProfile(
        user_name=(resource.user_name or "").strip(),
        external_id=resource.external_id or "",
        given_name=name.given_name or "",
        family_name=name.family_name or "",
        is_active=is_active if resource.active is None else resource.active,
    )


def group_profile_of(resource: Group) -> ScimGroupProfile:
    """Return the group profile in a request."""
    return ScimGroupProfile(
        display_name=(resource.display_name or "").strip(),
        external_id=resource.external_id or "",
        member_ids=tuple(each.value for each in resource.members or () if each.value),
    )


def _meta(kind: str, row_id: str, created: datetime, updated: datetime) -> Meta:
    return Meta(
        resource_type=kind,
        created=created,
        last_modified=updated,
        location=absolute(f"{BASE}/{kind}s/{row_id}"),
    )
