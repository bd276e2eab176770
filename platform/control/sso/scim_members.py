"""Provisioning by SCIM: create, suspend and remove users, and give them roles by groups."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from django.db import transaction
from django.utils import timezone

from control.accounts.models import EMAIL_MAX, User
from control.audit import services as audit
from control.db.row_changes import differences
from control.errors import Conflict, InvalidValue
from control.organizations import selectors as tenants
from control.organizations.models import Organization
from control.permissions import Actor, Role
from control.sso import addresses, provisioning, selectors
from control.sso.models import RemovedScimUser, ScimGroup, ScimUser
from control.sso.provisioning import effective_role, end_membership, ensure_membership
from control.sso.reclaim import record_removed

TEXT_MAX = 100
NAMED_MAX = 50
"""Members that one audit event names."""
NAMES = ("given_name", "family_name")
GROUP_MAX = 200


@dataclass(frozen=True, slots=True)
class ScimProfile:
    """The attributes of a SCIM user that we store."""

    user_name: str
    external_id: str = ""
    given_name: str = ""
    family_name: str = ""
    is_active: bool = True


@dataclass(frozen=True, slots=True)
class ScimGroupProfile:
    """The attributes of a SCIM group that we store; members are SCIM user ids."""

    display_name: str
    external_id: str = ""
    member_ids: tuple[str, ...] = ()


@transaction.atomic
def add_user(*, organization: Organization, profile: ScimProfile) -> ScimUser:
    """Add a user, with a membership unless they are suspended or have no mapped role.

    Raises Conflict for a duplicate, NotPermitted for an address of an unverified domain or of an
    operator.
    """
    organization = tenants.locked_organization(organization.id)
    _check(profile)
    user = _account(organization, profile)
    _check_free(organization, profile.user_name)
    row = ScimUser.objects.create(organization=organization, user=user, **asdict(profile))
    RemovedScimUser.objects.filter(organization=organization, user=user).delete()
    _sync_role(row)
    _record("scim.user_added", row, role=_role(row), **_without_names(asdict(profile)))
    return row


@transaction.atomic
def change_user(*, organization: Organization, scim_user_id: str, profile: ScimProfile) -> ScimUser:
    """Update a user. A new user name becomes the address of their account. A suspended user loses
    their membership, their sessions and, without a transfer target, their keys at once. Raises
    Conflict for the last owner and for an address that another account holds."""
    organization = tenants.locked_organization(organization.id)
    row = selectors.scim_user(organization, scim_user_id)
    _check(profile)
    is_renamed = profile.user_name.lower() != row.user_name.lower()
    if is_renamed:
        provisioning.own_address(organization, profile.user_name)
        _check_free(organization, profile.user_name)
    if _is_for_another_person(row, profile):
        record_removed(row)
        row.user = _account(organization, profile)
        row.save(update_fields=["user"])
    elif is_renamed:
        addresses.change_address(
            actor=_actor(organization), organization=organization, user=row.user,
            email=profile.user_name,
        )  # fmt: skip
        row.user.refresh_from_db(fields=["email"])
    values = asdict(profile)
    changed = sorted(field for field, value in values.items() if value != getattr(row, field))
    if not changed:
        return row
    before = {field: getattr(row, field) for field in changed}
    for field in changed:
        setattr(row, field, values[field])
    row.updated_at = timezone.now()
    row.save(update_fields=[*changed, "updated_at"])
    if "is_active" in changed:
        _sync_role(row)
        _record(
            "scim.user_resumed" if row.is_active else "scim.user_suspended", row, role=_role(row)
        )
    if changed != ["is_active"]:
        after = {field: values[field] for field in changed if field != "is_active"}
        kept = _without_names(after)
        names = {} if kept.keys() == after.keys() else {"name_changed": True}
        _record("scim.user_updated", row, **differences(before, kept), **names)
    return row


@transaction.atomic
def remove_user(*, organization: Organization, scim_user_id: str) -> None:
    """Remove a user: end their membership and delete their SCIM data but the external id, by which
    they are known if they come back."""
    organization = tenants.locked_organization(organization.id)
    row = selectors.scim_user(organization, scim_user_id)
    _record("scim.user_removed", row, role=_role(row))
    end_membership(actor=_actor(organization), organization=organization, user=row.user)
    record_removed(row)
    row.delete()


@transaction.atomic
def add_group(*, organization: Organization, profile: ScimGroupProfile) -> ScimGroup:
    """Add a group; its members get the role that its name is mapped to."""
    organization = tenants.locked_organization(organization.id)
    _check_group(organization, profile, known=None)
    row = ScimGroup.objects.create(
        organization=organization,
        display_name=profile.display_name,
        external_id=profile.external_id,
    )
    added, _ = _set_members(row, profile.member_ids)
    sync_roles(added)
    _record_group("scim.group_added", row, **_group_values(row), **_members("added", added))
    return row


@transaction.atomic
def change_group(
    *, organization: Organization, group_id: str, profile: ScimGroupProfile
) -> ScimGroup:
    """Update a group and the roles of its old and new members."""
    organization = tenants.locked_organization(organization.id)
    row = selectors.scim_group(organization, group_id)
    _check_group(organization, profile, known=row)
    before, is_renamed = _group_values(row), profile.display_name != row.display_name
    row.display_name, row.external_id = profile.display_name, profile.external_id
    row.updated_at = timezone.now()
    row.save(update_fields=["display_name", "external_id", "updated_at"])
    added, removed = _set_members(row, profile.member_ids)
    sync_roles([*removed, *(row.members.all() if is_renamed else added)])
    values = _group_values(row)
    changed = {field: value for field, value in values.items() if value != before[field]}
    members = _members("added", added) | _members("removed", removed)
    if changed or members:
        _record_group("scim.group_updated", row, **differences(before, changed), **members)
    return row


@transaction.atomic
def remove_group(*, organization: Organization, group_id: str) -> None:
    """Remove a group and update the roles of its members."""
    organization = tenants.locked_organization(organization.id)
    row = selectors.scim_group(organization, group_id)
    members = list(row.members.all())
    _record_group("scim.group_removed", row, **_group_values(row))
    row.delete()
    sync_roles(selectors.scim_users(organization).filter(id__in=[member.id for member in members]))


def sync_roles(rows: Iterable[ScimUser]) -> None:
    """Give each user the membership and role of their groups."""
    for row in rows:
        _sync_role(row)


def _account(organization: Organization, profile: ScimProfile) -> User:
    """Return the account of a new SCIM user. Raises Conflict if it is another SCIM user's."""
    name = f"{profile.given_name} {profile.family_name}".strip()
    user = provisioning.account(
        organization, profile.user_name, name=name, external_id=profile.external_id
    )
    if selectors.scim_users(organization).filter(user=user).exists():
        raise Conflict(f"{profile.user_name} already exists.", param="userName")
    return user


def _is_for_another_person(row: ScimUser, profile: ScimProfile) -> bool:
    """Return whether a provider uses a suspended user again for somebody else, as Okta does for a
    new person with an old user name: the external id is another one."""
    ids = {row.external_id, profile.external_id}
    return not row.is_active and "" not in ids and len(ids) > 1


def _sync_role(row: ScimUser) -> None:
    """Create, change or end a user's membership by their status and groups."""
    organization, actor = row.organization, _actor(row.organization)
    if not row.is_active:
        end_membership(actor=actor, organization=organization, user=row.user)
        return
    membership = selectors.membership_of(organization, row.user)
    values = tuple(row.groups.values_list("display_name", flat=True))
    connection = selectors.connection(organization)
    role = effective_role(connection, values, membership.role if membership else None)
    if membership is None and not selectors.is_own(organization, row.user):
        role = ""  # The domain was removed.
    if role and selectors.may_be_opened(row.user):
        ensure_membership(actor=actor, organization=organization, user=row.user, role=role)
    elif membership is not None:
        end_membership(actor=actor, organization=organization, user=row.user)


def _set_members(
    row: ScimGroup, member_ids: tuple[str, ...]
) -> tuple[list[ScimUser], list[ScimUser]]:
    """Set a group's members; return who was added and who was removed."""
    before, wanted = set(row.members.values_list("id", flat=True)), set(member_ids)
    changed = list(selectors.scim_users(row.organization).filter(id__in=wanted ^ before))
    if wanted - before - {user.id for user in changed}:
        raise InvalidValue("A member of the group is not a user here.", param="members")
    added = [user for user in changed if user.id in wanted]
    removed = [user for user in changed if user.id in before]
    row.members.add(*added)
    row.members.remove(*removed)
    return added, removed


def _check(profile: ScimProfile) -> None:
    texts = (profile.external_id, profile.given_name, profile.family_name)
    if len(profile.user_name) > EMAIL_MAX or any(len(text) > TEXT_MAX for text in texts):
        raise InvalidValue(f"Names and IDs have at most {TEXT_MAX} characters.")
    if not all(text.isprintable() for text in (profile.user_name, *texts)):
        raise InvalidValue("Names and IDs must have printable characters only.")


def _check_free(organization: Organization, user_name: str) -> None:
    if selectors.scim_users(organization).filter(user_name__iexact=user_name).exists():
        raise Conflict(f"{user_name} already exists.", param="userName")


def _check_group(
    organization: Organization, profile: ScimGroupProfile, *, known: ScimGroup | None
) -> None:
    texts = (profile.display_name, profile.external_id)
    if not profile.display_name or any(
        len(text) > GROUP_MAX or not text.isprintable() for text in texts
    ):
        message = f"A group has a name of at most {GROUP_MAX} printable characters."
        raise InvalidValue(message, param="displayName")
    same = selectors.scim_groups(organization).filter(display_name=profile.display_name)
    if same.exclude(id=known.id if known else "").exists():
        raise Conflict(f"A group named {profile.display_name} already exists.", param="displayName")


def _actor(organization: Organization) -> Actor:
    return provisioning.provider(organization, "SCIM", Role.OWNER)


def _role(row: ScimUser) -> str:
    membership = selectors.membership_of(row.organization, row.user)
    return membership.role if membership else ""


def _record(action: str, row: ScimUser, **details: object) -> None:
    audit.record(
        actor=_actor(row.organization),
        action=action,
        target_kind="user",
        target_id=row.user_id,
        target_name=row.user.email,
        organization_id=row.organization_id,
        details={"email": row.user.email, **details},
    )


def _without_names(values: dict[str, object]) -> dict[str, object]:
    """Return values without people's names, which no audit event holds: they can be erased."""
    return {field: value for field, value in values.items() if field not in NAMES}


def _group_values(row: ScimGroup) -> dict[str, object]:
    return {
        "display_name": row.display_name,
        "external_id": row.external_id,
        "member_count": row.members.count(),
    }


def _members(verb: str, users: list[ScimUser]) -> dict[str, object]:
    """Return the names of added or removed users: a provider may send thousands at once."""
    names = sorted(user.user_name for user in users)
    if len(names) > NAMED_MAX:
        names = [*names[:NAMED_MAX], f"and {len(names) - NAMED_MAX} more"]
    return {f"members_{verb}": names} if names else {}


def _record_group(action: str, row: ScimGroup, **details: object) -> None:
    audit.record_about(_actor(row.organization), action, row, "group", **details)
