"""The seat that a provider's word gives or takes."""

from control.actor import Actor
from control.audit import services as audit
from control.sso import people, selectors
from control.tenants.models import Membership, Organization, User
from control.tenants.permissions import Action, can
from control.tenants.services import change_role, remove_member


def seat_at(*, actor: Actor, organization: Organization, user: User, role: str) -> Membership:
    """Give a person a seat with a role, or the seat that they have this role."""
    seat = selectors.seat(organization, user)
    if seat is not None:
        if seat.role == role:
            return seat
        return change_role(actor=actor, membership=seat, role=role)
    seat = Membership.objects.create(organization=organization, user=user, role=role)
    audit.record(
        actor=actor,
        action="member.join",
        target_kind="membership",
        target_id=seat.id,
        organization_id=organization.id,
        details={"email": user.email, "role": role},
    )
    return seat


def take_seat(*, actor: Actor, organization: Organization, user: User) -> None:
    """Take a person's seat, if they have one; their keys end, or go to SCIM's heir. Their sessions
    end at once where the organization owns their address. Raises Conflict for the last owner."""
    seat = selectors.seat(organization, user)
    if seat is not None:
        remove_member(actor=actor, membership=seat, heir=_heir(organization, seat))
    if selectors.is_own(organization, user) and people.may_be_opened(user):
        people.end_sessions(user)


def _heir(organization: Organization, seat: Membership) -> Membership | None:
    access = selectors.scim_access(organization)
    heir = access.heir if access else None
    if heir is None or heir == seat or not can(heir.role, Action.MAKE_KEYS):
        return None
    return heir
