"""Writing down what was done, in the transaction that does it."""

from datetime import timedelta
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from control.audit.models import AuditEvent
from control.audit.pseudonyms import PERSON, pseudonymize
from control.permissions import Actor
from control.request_context import current_request

LOOKED_BACK = 200
"""How many of an actor's latest deeds are asked whether one says the same."""
ONE_BY_ONE = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"


def record(
    *,
    actor: Actor,
    action: str,
    target_kind: str,
    target_id: str,
    organization_id: str = "",
    details: dict[str, Any] | None = None,
) -> AuditEvent:
    """Add an audit entry; `action` is a noun and a verb such as `key.mint`, `details` hold no
    secrets. E-mail addresses in them become references; whence it comes is known of the request."""
    found = current_request()
    return AuditEvent.objects.create(
        organization_id=organization_id,
        actor_kind=actor.kind,
        actor_id=actor.id,
        actor_name="" if actor.kind == PERSON and actor.id else actor.name,
        action=action,
        target_kind=target_kind,
        target_id=target_id,
        details=pseudonymize(details or {}, target_kind, target_id),
        address=found.address,
        request_id=found.request_id,
    )


@transaction.atomic
def record_once_within(
    pause: timedelta, *, actor: Actor, action: str, target_id: str, **told: Any
) -> None:
    """Add an audit entry unless the actor did the same to the same within `pause`, so that a page
    looked at again and again is one deed."""
    with connection.cursor() as cursor:
        cursor.execute(ONE_BY_ONE, [f"{actor.kind} {actor.id} {action} {target_id}"])
    latest = AuditEvent.objects.filter(actor_kind=actor.kind, actor_id=actor.id).order_by("-id")
    same = AuditEvent.objects.filter(
        pk__in=latest.values("pk")[:LOOKED_BACK],
        action=action,
        target_id=target_id,
        created_at__gt=timezone.now() - pause,
    )
    if not same.exists():
        record(actor=actor, action=action, target_id=target_id, **told)
