"""Writing down what was done, in the transaction that does it."""

from typing import Any

from control.actor import Actor
from control.audit.models import Deed
from control.audit.people import PERSON, referenced
from control.whence import whence


def record(
    *,
    actor: Actor,
    action: str,
    target_kind: str,
    target_id: str,
    organization_id: str = "",
    details: dict[str, Any] | None = None,
) -> Deed:
    """Add an audit entry; `action` is a noun and a verb such as `key.mint`, `details` hold no
    secrets. E-mail addresses in them become references; whence it comes is known of the request."""
    found = whence()
    return Deed.objects.create(
        organization_id=organization_id,
        actor_kind=actor.kind,
        actor_id=actor.id,
        actor_name="" if actor.kind == PERSON and actor.id else actor.name,
        action=action,
        target_kind=target_kind,
        target_id=target_id,
        details=referenced(details or {}, target_kind, target_id),
        address=found.address,
        request_id=found.request_id,
    )
