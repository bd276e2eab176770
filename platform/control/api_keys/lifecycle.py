"""Revoke keys when their organization or project ends, or when their creator loses the right to
create them, in the transaction of that change."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext, ngettext

from control.api_keys.models import ApiKey, ApiKeyKind, PreviousSecret
from control.api_keys.selectors import active_keys, locked_live_keys
from control.feed.services import FeedRef
from control.organizations.models import Membership, Organization, Project
from control.organizations.signals import (
    DeletionEffect,
    membership_changed,
    organization_deleted,
    organization_deletion_previewed,
    project_archived,
)
from control.permissions import ROLE_PERMISSIONS, Permission


def listen() -> None:
    """Connect receivers to the signals of organizations."""
    project_archived.connect(_on_archive, dispatch_uid="control.api_keys.lifecycle")
    membership_changed.connect(
        _on_membership_changed, dispatch_uid="control.api_keys.lifecycle.seat"
    )
    organization_deletion_previewed.connect(
        _on_deletion_previewed, dispatch_uid="control.api_keys.lifecycle.asked"
    )
    organization_deleted.connect(
        _on_deleted, dispatch_uid="control.api_keys.lifecycle.organization"
    )


def _on_archive(sender: object, project: Project, now: datetime, **_: Any) -> list[FeedRef]:
    return _revoke(locked_live_keys(project.organization, project=project), now)


def _on_deletion_previewed(
    sender: object, organization: Organization, **_: Any
) -> list[DeletionEffect]:
    count = active_keys(organization, timezone.now()).count()
    if not count:
        return [DeletionEffect(gettext("There are no active API keys."))]
    words = ngettext(
        "%(count)d API key stops working within a second, on every gateway.",
        "%(count)d API keys stop working within a second, on every gateway.",
        count,
    )
    return [DeletionEffect(words % {"count": count})]


def _on_deleted(
    sender: object, organization: Organization, now: datetime, **_: Any
) -> list[FeedRef]:
    return _revoke(locked_live_keys(organization), now)


def _on_membership_changed(
    sender: object,
    membership: Membership,
    is_over: bool,
    heir: Membership | None,
    now: datetime,
    **_: Any,
) -> list[FeedRef]:
    """Revoke the member's keys that nobody with the right to create them is responsible for. A
    lesser role ends keys of the management API; the end of the membership ends all keys that the
    transfer target does not take."""
    theirs = locked_live_keys(membership.organization).filter(created_by=membership.user)
    ended = []
    for key in theirs:
        if not is_over and _may_make(membership, key):
            continue
        if heir is not None and key.kind == ApiKeyKind.STANDARD and _may_make(heir, key):
            key.created_by = heir.user
            key.save(update_fields=["created_by"])
            continue
        if is_over or key.permissions:
            ended.append(key)
    changed = _revoke_previous_secrets(membership) if is_over and heir is None else []
    return [*_revoke(ended, now), *changed]


def _revoke_previous_secrets(membership: Membership) -> list[FeedRef]:
    """Revoke the member's secrets that others replaced; the keys keep their current secrets."""
    secrets = PreviousSecret.objects.filter(
        made_by=membership.user,
        key__revoked_at__isnull=True,
        key__organization=membership.organization,
    )
    key_ids = sorted(set(secrets.values_list("key_id", flat=True)))
    secrets.delete()
    return [FeedRef("api_key", key_id) for key_id in key_ids]


def _may_make(membership: Membership, key: ApiKey) -> bool:
    """Return whether the member's role may create a key with the same scopes."""
    return key.permissions | {Permission.API_KEYS_WRITE} <= ROLE_PERMISSIONS[membership.role]


def _revoke(keys: Iterable[ApiKey], now: datetime) -> list[FeedRef]:
    ended = list(keys)
    for key in ended:
        key.revoked_at = now
        key.save(update_fields=["revoked_at"])
    return [FeedRef("api_key", key.id) for key in ended]
