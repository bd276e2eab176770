"""Kept answers are erased at once where an organization takes no idempotency keys any more, or
ends."""

from typing import Any

from control.idempotency.services import erase
from control.publish.services import Touched
from control.tenants.models import Organization
from control.tenants.signals import idempotency_keys_refused, organization_ended


def listen() -> None:
    """Erase answers in the transaction that refuses keys."""
    idempotency_keys_refused.connect(_on_refusal, dispatch_uid="control.idempotency.erasing")
    organization_ended.connect(_on_end, dispatch_uid="control.idempotency.erasing.end")


def _on_refusal(sender: object, organization: Organization, **_: Any) -> None:
    erase(organization.id)


def _on_end(sender: object, organization: Organization, **_: Any) -> list[Touched]:
    erase(organization.id)
    return []
