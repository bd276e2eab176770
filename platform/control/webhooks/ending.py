"""Webhook endpoints end with their organization, in its transaction."""

from datetime import datetime
from typing import Any

from control.feed.services import FeedRef
from control.tenants.models import Organization
from control.tenants.signals import Consequence, organization_end_asked, organization_ended
from control.webhooks import selectors
from control.webhooks.models import Secret


def listen() -> None:
    """End endpoints from now on."""
    organization_end_asked.connect(_on_end_asked, dispatch_uid="control.webhooks.ending.asked")
    organization_ended.connect(_on_end, dispatch_uid="control.webhooks.ending")


def _on_end_asked(sender: object, organization: Organization, **_: Any) -> list[Consequence]:
    count = selectors.endpoints(organization).count()
    are_told = "1 webhook endpoint is" if count == 1 else f"{count} webhook endpoints are"
    return [Consequence(f"{are_told} told nothing more.")] if count else []


def _on_end(sender: object, organization: Organization, now: datetime, **_: Any) -> list[FeedRef]:
    ended = selectors.endpoints(organization)
    Secret.objects.filter(endpoint__in=ended).delete()
    ended.update(is_enabled=False, deleted_at=now)
    return []
