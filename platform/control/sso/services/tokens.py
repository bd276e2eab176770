"""The bearer token that a provider's SCIM shows, and who takes the keys of whom it suspends."""

from django.db import transaction
from django.utils import timezone

from control.actor import Actor
from control.audit import services as audit
from control.errors import Conflict, InvalidValue
from control.sso import selectors
from control.sso.models import ScimAccess
from control.sso.secrets import new_token, token_digest
from control.tenants.models import Membership, Organization
from control.tenants.permissions import Action, can, require


@transaction.atomic
def make_token(*, actor: Actor, organization: Organization) -> str:
    """Return a new bearer token, told once; the one before opens nothing more. It does what owners
    may do to members, so owners alone make it."""
    require(actor, organization, Action.MANAGE_OWNERS)
    token = new_token()
    fields = {"digest": token_digest(token), "last_four": token[-4:], "created_at": timezone.now()}
    _, is_first = ScimAccess.objects.update_or_create(
        organization=organization, defaults={**fields, "last_used_at": None}
    )
    _record(actor, "scim.make_token" if is_first else "scim.rotate_token", organization)
    return token


@transaction.atomic
def end_scim(*, actor: Actor, organization: Organization) -> None:
    """End the token; whom SCIM brought stay as they are."""
    require(actor, organization, Action.MANAGE_OWNERS)
    _access(organization).delete()
    _record(actor, "scim.end_token", organization)


@transaction.atomic
def set_heir(*, actor: Actor, organization: Organization, heir: Membership | None) -> None:
    """Say who takes the API keys of whom SCIM suspends; without an heir they end. Raises
    InvalidValue for one who may make no keys."""
    require(actor, organization, Action.MANAGE_OWNERS)
    if heir is not None and not can(heir.role, Action.MAKE_KEYS):
        raise InvalidValue("Keys go to a member who may make keys.", param="heir")
    access = _access(organization)
    access.heir = heir
    access.save(update_fields=["heir"])
    _record(actor, "scim.set_heir", organization, heir=heir.user.email if heir else None)


def _access(organization: Organization) -> ScimAccess:
    found = selectors.scim_access(organization)
    if found is None:
        raise Conflict("Make a token first.")
    return found


def _record(actor: Actor, action: str, organization: Organization, **details: object) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind="organization",
        target_id=organization.id,
        organization_id=organization.id,
        details=details,
    )
