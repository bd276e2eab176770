"""Records audit events in the transaction of the action."""

from datetime import timedelta
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from control.audit.models import TARGET_NAME_MAX, AuditEvent
from control.audit.pseudonyms import PERSON, pseudonymize
from control.permissions import Actor
from control.request_context import current_request

LOOKED_BACK = 200
"""The number of an actor's latest events that are searched for the same one."""
ONE_BY_ONE = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"


def record(
    *,
    actor: Actor,
    action: str,
    target_kind: str,
    target_id: str,
    target_name: str,
    organization_id: str = "",
    details: dict[str, Any] | None = None,
) -> AuditEvent:
    """Add an audit event. `action` is a noun and a past participle, such as `api_key.created`.
    `target_name` is what people call the target. `details` hold exact values by the names of
    fields; those that changed are under `before` and `after`. `control.audit.changes` words them.
    They hold no secrets; email addresses in them become references, and `operator_token` names
    the token that an operator acted with. The client address and the request id come from the
    current request."""
    request, details = current_request(), details or {}
    if actor.token_id is not None:
        details = {**details, "operator_token": actor.token_id}
    stored = pseudonymize({"name": target_name, "details": details}, target_kind, target_id)
    return AuditEvent.objects.create(
        organization_id=organization_id,
        actor_kind=actor.kind,
        actor_id=actor.id,
        actor_name="" if actor.kind == PERSON and actor.id else actor.name,
        action=action,
        target_kind=target_kind,
        target_id=target_id,
        target_name=stored["name"][:TARGET_NAME_MAX],
        details=stored["details"],
        address=request.address,
        request_id=request.request_id,
    )


def record_about(
    actor: Actor, action: str, row: Any, target_kind: str = "", /, **details: Any
) -> AuditEvent:
    """Add an audit event about a row, named as `str` names it, in the log of its organization if it
    belongs to one. Its kind is the noun that the action begins with, unless another is given."""
    kind = target_kind or action.partition(".")[0]
    return record(
        actor=actor,
        action=action,
        target_kind=kind,
        target_id=row.pk,
        target_name=str(row),
        organization_id=row.pk if kind == "organization" else getattr(row, "organization_id", ""),
        details=details,
    )


@transaction.atomic
def record_once_within(
    pause: timedelta, *, actor: Actor, action: str, target_id: str, **fields: Any
) -> None:
    """Add an audit event unless the actor did the same to the same target within `pause`, so that
    viewing a page repeatedly is one event."""
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
        record(actor=actor, action=action, target_id=target_id, **fields)
