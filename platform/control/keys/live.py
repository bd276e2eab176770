"""What every change of a key begins and ends with: who may, and what was done."""

from typing import Any

from control.actor import Actor
from control.audit import services as audit
from control.errors import Conflict, NotPermitted
from control.keys import selectors
from control.keys.models import ApiKey, Kind, Scope
from control.tenants import selectors as tenants
from control.tenants.models import Organization
from control.tenants.permissions import Action, member, require


def require_key_access(actor: Actor, key: ApiKey) -> None:
    """Let an actor pass who may change a key: one of their own, or, with an admin's right, any.

    Raises ObjectNotFound in another organization, else NotPermitted.
    """
    require(actor, key.organization, Action.MAKE_KEYS)
    if Scope.MANAGE in key.scopes:
        require(actor, key.organization, Action.MAKE_MANAGE_KEYS)
    if actor.person_id is None or key.created_by_id != actor.person_id:
        try:
            require(actor, key.organization, Action.MAKE_MANAGE_KEYS)
        except NotPermitted as refused:
            words = "You can change only API keys that you created. Ask an owner or admin."
            raise NotPermitted(words) from refused


def require_current_seat(actor: Actor, organization: Organization, action: Action) -> None:
    """Let an actor pass whose person still has a seat, and a role that allows `action`.

    Call it with the organization's row locked, as whoever removes a member or changes a role locks
    it: then no key outlives the right that it was made with. Raises ObjectNotFound and
    NotPermitted.
    """
    if actor.person_id is not None and not actor.is_operator:
        require(member(tenants.membership(actor.person_id, organization.id)), organization, action)


def live_key(actor: Actor, key: ApiKey) -> ApiKey:
    """Return a key that the actor may change, its row locked. Raises Conflict if it has ended."""
    require(actor, key.organization, Action.READ)
    key = selectors.locked_key(key.organization, key.id)
    require_key_access(actor, key)
    if key.revoked_at is not None:
        raise Conflict("The API key is revoked.")
    return key


def peoples_key(actor: Actor, key: ApiKey) -> ApiKey:
    """Return a key that the actor may change, as `live_key` does; the console's own playground keys
    change by themselves alone. Raises Conflict for those."""
    found = live_key(actor, key)
    if found.kind != Kind.STANDARD:
        raise Conflict("The key of the console's playground can be revoked, and nothing else.")
    return found


def record(actor: Actor, action: str, key: ApiKey, **details: Any) -> None:
    """Write down what was done to a key."""
    audit.record(
        actor=actor,
        action=action,
        target_kind="api_key",
        target_id=key.id,
        organization_id=key.organization_id,
        details=details,
    )
