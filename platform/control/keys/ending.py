"""Keys end with what they belong to: an organization, a project, or their maker's right to make
them.

All of it happens in the transaction that ends the organization or project, or changes the seat.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from control.feed.services import FeedRef
from control.keys.models import ApiKey, Kind, OldSecret, Scope
from control.keys.selectors import keys, locked_live_keys
from control.tenants.models import Membership, Organization, Project
from control.tenants.permissions import Action, can
from control.tenants.signals import (
    Consequence,
    organization_end_asked,
    organization_ended,
    project_archived,
    seat_changed,
)


def listen() -> None:
    """End keys with their project, and with their maker's seat."""
    project_archived.connect(_on_archive, dispatch_uid="control.keys.ending")
    seat_changed.connect(_on_seat_changed, dispatch_uid="control.keys.ending.seat")
    organization_end_asked.connect(_on_end_asked, dispatch_uid="control.keys.ending.asked")
    organization_ended.connect(_on_end, dispatch_uid="control.keys.ending.organization")


def _on_archive(sender: object, project: Project, now: datetime, **_: Any) -> list[FeedRef]:
    return _end(locked_live_keys(project.organization, project=project), now)


def _on_end_asked(sender: object, organization: Organization, **_: Any) -> list[Consequence]:
    count = keys(organization).count()
    if not count:
        return [Consequence("It has no API key that works.")]
    stop = "1 API key stops" if count == 1 else f"{count} API keys stop"
    return [Consequence(f"{stop} working within a second, on every gateway.")]


def _on_end(sender: object, organization: Organization, now: datetime, **_: Any) -> list[FeedRef]:
    return _end(locked_live_keys(organization), now)


def _on_seat_changed(
    sender: object,
    membership: Membership,
    is_over: bool,
    heir: Membership | None,
    now: datetime,
    **_: Any,
) -> list[FeedRef]:
    """End the member's keys that nobody with the right to make them stands for any more: with a
    lesser role those of the management API, with the seat all that no heir takes."""
    theirs = locked_live_keys(membership.organization).filter(created_by=membership.user)
    ended = []
    for key in theirs:
        if not is_over and _may_make(membership, key):
            continue
        if heir is not None and key.kind == Kind.STANDARD and _may_make(heir, key):
            key.created_by = heir.user
            key.save(update_fields=["created_by"])
            continue
        if is_over or Scope.MANAGE in key.scopes:
            ended.append(key)
    old = _end_old_secrets(membership) if is_over and heir is None else []
    return [*_end(ended, now), *old]


def _end_old_secrets(membership: Membership) -> list[FeedRef]:
    """End the secrets that the member made and that others replaced, though their keys go on."""
    made = OldSecret.objects.filter(made_by=membership.user, key__revoked_at__isnull=True)
    theirs = made.filter(key__organization=membership.organization)
    keys_of = sorted(set(theirs.values_list("key_id", flat=True)))
    theirs.delete()
    return [FeedRef("api_key", key_id) for key_id in keys_of]


def _may_make(membership: Membership, key: ApiKey) -> bool:
    wanted = Action.MAKE_MANAGE_KEYS if Scope.MANAGE in key.scopes else Action.MAKE_KEYS
    return can(membership.role, wanted)


def _end(keys: Iterable[ApiKey], now: datetime) -> list[FeedRef]:
    ended = list(keys)
    for key in ended:
        key.revoked_at = now
        key.save(update_fields=["revoked_at"])
    return [FeedRef("api_key", key.id) for key in ended]
