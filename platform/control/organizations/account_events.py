"""Audits what happens to a person's account in each of their organizations, since each has its own
auditors to answer to. The audit log itself keeps client address and request id."""

from typing import Any

from control.accounts.models import User
from control.accounts.signals import account_event
from control.audit import services as audit
from control.organizations import selectors
from control.permissions import Actor


def listen() -> None:
    """Receive account events: this is their one receiver."""
    account_event.connect(_record, dispatch_uid="control.organizations.account_events")


def _record(
    sender: object, user: User, action: str, by: Actor, details: dict[str, Any], **_: Any
) -> None:
    organizations = [each.organization_id for each in selectors.memberships(user)]
    for organization_id in organizations or [""]:
        audit.record(
            actor=by,
            action=action,
            target_kind="user",
            target_id=user.id,
            organization_id=organization_id,
            details=details,
        )
