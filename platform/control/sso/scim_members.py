"""What a provider does by SCIM: people come, are suspended and go, and groups give them roles."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from django.db import transaction
from django.utils import timezone

from control.accounts.models import EMAIL_MAX
from control.audit import services as audit
from control.errors import Conflict, InvalidValue
from control.organizations import selectors as tenants
from control.organizations.models import Organization
from control.permissions import Actor, Role
from control.sso import provisioning, selectors
from control.sso.models import ScimGroup, ScimUser
from control.sso.provisioning import effective_role, end_membership, ensure_membership

TEXT_MAX = 100
GROUP_MAX = 200


@dataclass(frozen=True, slots=True)
class ScimProfile:
    """What SCIM says of a person."""

    user_name: str
    external_id: str = ""
    given_name: str = ""
    family_name: str = ""
    is_active: bool = True


@dataclass(frozen=True, slots=True)
class ScimGroupProfile:
    """What SCIM says of a group; members by their ids in SCIM."""

    display_name: str
    external_id: str = ""
    member_ids: tuple[str, ...] = ()


@transaction.atomic
def add_user(*, organization: Organization, profile: ScimProfile) -> ScimUser:
    """Take a person in, with a seat unless they are suspended or the map has no role for them.

    Raises Conflict for somebody who is here already, NotPermitted for an address of a domain that
    is not verified, and for an operator's.
    """
    organization = tenants.locked_organization(organization.id)
    _check(profile)
    name = f"{profile.given_name} {profile.family_name}".strip()
    user = provisioning.account(organization, profile.user_name, name=name)
    _check_free(organization, profile.user_name)
    if selectors.scim_users(organization).filter(user=user).exists():
        raise Conflict(f"{profile.user_name} is here already.", param="userName")
    row = ScimUser.objects.create(organization=organization, user=user, **asdict(profile))
    _sync_role(row)
    _record("scim.add_user", row, role=_role(row), is_active=row.is_active)
    return row


@transaction.atomic
def change_user(*, organization: Organization, scim_user_id: str, profile: ScimProfile) -> ScimUser:
    """Take what SCIM says of a person now. Suspended, they lose their seat, their sessions and, but
    for SCIM's heir, their keys at once. Raises Conflict for the last owner."""
    organization = tenants.locked_organization(organization.id)
    row = selectors.scim_user(organization, scim_user_id)
    _check(profile)
    if profile.user_name.lower() != row.user_name.lower():
        provisioning.own_address(organization, profile.user_name)
        _check_free(organization, profile.user_name)
    before = {field: getattr(row, field) for field in asdict(profile)}
    changed = sorted(field for field, value in asdict(profile).items() if value != before[field])
    if not changed:
        return row
    for field in changed:
        setattr(row, field, getattr(profile, field))
    row.updated_at = timezone.now()
    row.save(update_fields=[*changed, "updated_at"])
    if "is_active" in changed:
        _sync_role(row)
        _record("scim.resume_user" if row.is_active else "scim.suspend_user", row, role=_role(row))
    if changed != ["is_active"]:
        _record("scim.change_user", row, fields=[each for each in changed if each != "is_active"])
    return row


@transaction.atomic
def remove_user(*, organization: Organization, scim_user_id: str) -> None:
    """Let a person go as if suspended, and forget what SCIM said of them."""
    organization = tenants.locked_organization(organization.id)
    row = selectors.scim_user(organization, scim_user_id)
    _record("scim.remove_user", row, role=_role(row))
    end_membership(actor=_actor(organization), organization=organization, user=row.user)
    row.delete()


@transaction.atomic
def add_group(*, organization: Organization, profile: ScimGroupProfile) -> ScimGroup:
    """Make a group; its members get the role that the map has for its name."""
    organization = tenants.locked_organization(organization.id)
    _check_group(organization, profile, known=None)
    row = ScimGroup.objects.create(
        organization=organization,
        display_name=profile.display_name,
        external_id=profile.external_id,
    )
    _set_members(row, profile.member_ids)
    _record_group("scim.add_group", row)
    return row


@transaction.atomic
def change_group(
    *, organization: Organization, group_id: str, profile: ScimGroupProfile
) -> ScimGroup:
    """Take what SCIM says of a group now; who came or went gets the role that is theirs then."""
    organization = tenants.locked_organization(organization.id)
    row = selectors.scim_group(organization, group_id)
    _check_group(organization, profile, known=row)
    row.display_name, row.external_id = profile.display_name, profile.external_id
    row.updated_at = timezone.now()
    row.save(update_fields=["display_name", "external_id", "updated_at"])
    _set_members(row, profile.member_ids)
    _record_group("scim.change_group", row)
    return row


@transaction.atomic
def remove_group(*, organization: Organization, group_id: str) -> None:
    """End a group; its members get the role that is theirs without it."""
    organization = tenants.locked_organization(organization.id)
    row = selectors.scim_group(organization, group_id)
    members = list(row.members.all())
    _record_group("scim.remove_group", row)
    row.delete()
    sync_roles(selectors.scim_users(organization).filter(id__in=[each.id for each in members]))


def sync_roles(rows: Iterable[ScimUser]) -> None:
    """Give each person the seat that groups and map say."""
    for row in rows:
        _sync_role(row)


def _sync_role(row: ScimUser) -> None:
    """Give a person the seat that is theirs, or take it where none is."""
    organization, actor = row.organization, _actor(row.organization)
    if not row.is_active:
        end_membership(actor=actor, organization=organization, user=row.user)
        return
    seat = selectors.membership_of(organization, row.user)
    values = tuple(row.groups.values_list("display_name", flat=True))
    connection = selectors.connection(organization)
    role = effective_role(connection, values, seat.role if seat else None)
    if seat is None and not selectors.is_own(organization, row.user):
        role = ""  # the domain was given up
    if role and provisioning.may_be_opened(row.user):
        ensure_membership(actor=actor, organization=organization, user=row.user, role=role)
    elif seat is not None:
        end_membership(actor=actor, organization=organization, user=row.user)


def _set_members(row: ScimGroup, member_ids: tuple[str, ...]) -> None:
    before = set(row.members.values_list("id", flat=True))
    wanted = set(member_ids)
    known = selectors.scim_users(row.organization).filter(id__in=wanted | before)
    if wanted - {each.id for each in known}:
        raise InvalidValue("A member of the group is no user here.", param="members")
    row.members.set([each for each in known if each.id in wanted])
    sync_roles(selectors.scim_users(row.organization).filter(id__in=wanted | before))


def _check(profile: ScimProfile) -> None:
    texts = (profile.external_id, profile.given_name, profile.family_name)
    if len(profile.user_name) > EMAIL_MAX or any(len(each) > TEXT_MAX for each in texts):
        raise InvalidValue(f"Names and ids have at most {TEXT_MAX} characters.")
    if not all(each.isprintable() for each in (profile.user_name, *texts)):
        raise InvalidValue("Names and ids are printable characters.")


def _check_free(organization: Organization, user_name: str) -> None:
    taken = selectors.scim_users(organization).filter(user_name__iexact=user_name)
    if taken.exists():
        raise Conflict(f"{user_name} is here already.", param="userName")


def _check_group(
    organization: Organization, profile: ScimGroupProfile, *, known: ScimGroup | None
) -> None:
    texts = (profile.display_name, profile.external_id)
    if not profile.display_name or any(
        len(each) > GROUP_MAX or not each.isprintable() for each in texts
    ):
        words = f"A group has a name of at most {GROUP_MAX} printable characters."
        raise InvalidValue(words, param="displayName")
    same = selectors.scim_groups(organization).filter(display_name=profile.display_name)
    if same.exclude(id=known.id if known else "").exists():
        raise Conflict(f"There is a group {profile.display_name} already.", param="displayName")


def _actor(organization: Organization) -> Actor:
    return provisioning.provider(organization, "SCIM", Role.OWNER)


def _role(row: ScimUser) -> str:
    seat = selectors.membership_of(row.organization, row.user)
    return seat.role if seat else ""


def _record(action: str, row: ScimUser, **details: object) -> None:
    audit.record(
        actor=_actor(row.organization),
        action=action,
        target_kind="user",
        target_id=row.user_id,
        organization_id=row.organization_id,
        details={"email": row.user.email, **details},
    )


def _record_group(action: str, row: ScimGroup) -> None:
    audit.record(
        actor=_actor(row.organization),
        action=action,
        target_kind="group",
        target_id=row.id,
        organization_id=row.organization_id,
        details={"group": row.display_name, "members": row.members.count()},
    )
