"""Record a user's account events in the audit log of each of their organizations, since each has
its own auditors. The audit log adds the client address and the request id."""

from typing import Any

from control.accounts.models import User
from control.accounts.signals import account_event
from control.audit import services as audit
from control.organizations import selectors
from control.permissions import Actor


def listen() -> None:
    """Connect the only receiver of account events."""
    account_event.connect(_record, dispatch_uid="control.organizations.account_events")


def _record(
    sender: object, user: User, action: str, by: Actor, details: dict[str, Any], **_: Any
) -> None:
    organization_ids = [row.organization_id for row in selectors.memberships(user)]
    for organization_id in organization_ids or [""]:
        audit.record(
            actor=by.in_log_of(organization_id),
            action=action,
            target_kind="user",
            target_id=user.id,
            target_name=user.email,
            organization_id=organization_id,
            details=details,
        )
