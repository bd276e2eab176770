"""What every change of a key begins and ends with: who may, and what was done."""

from typing import Any

from control.actor import Actor
from control.audit import services as audit
from control.errors import Conflict
from control.keys import selectors
from control.keys.models import ApiKey, Kind, Scope
from control.tenants.permissions import Action, require


def live_key(actor: Actor, key: ApiKey) -> ApiKey:
    """Return a key that the actor may change, its row locked. Raises Conflict if it has ended."""
    require(actor, key.organization, Action.MAKE_KEYS)
    if Scope.MANAGE in key.scopes:
        require(actor, key.organization, Action.MAKE_MANAGE_KEYS)
    key = selectors.locked_key(key.organization, key.id)
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
